"""The library's three functions."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna_dashboard import get_note
from optuna_dashboard._custom_plot_data import get_plotly_graph_objects

from tuner import api
from tuner.errors import ConfigError, Interrupted, StoreError, TunerError, UsageError
from tuner.events import Event, StageChanged, TrialFinished
from tuner.store.database import open_store
from tuner.store.record import RecommendationRecord, TrialRecord


@pytest.fixture
def study(work: Path, study_yaml: Callable[..., str]) -> Path:
    path = work / "library.yaml"
    path.write_text(study_yaml(name="library"))
    return path


def test_load_run_results(study: Path) -> None:
    seen: list[Event] = []
    done = api.run(api.load_study(study), observer=seen.append)
    assert [trial.state for trial in done.trials] == ["baseline", "complete"]
    assert len([event for event in seen if isinstance(event, TrialFinished)]) == 2
    assert done.recommendation is not None
    assert done.recommendation.is_simulated
    assert done.objective == "maximize output_tokens_per_s at c1"
    assert api.results("library") == done
    assert api.results(study) == done
    assert done.best in done.trials


def dashboard_of(name: str) -> tuple[str, dict[int, str], set[str], list[str]]:
    """The study's note, the trials' notes, the names of charts, the names of artifacts."""
    with open_store(f"sqlite:///results/{name}/study.db", create=False) as store:
        study = optuna.load_study(study_name=name, storage=store.optuna_storage)
        trials = study.get_trials(deepcopy=False)
        notes = {t.number: get_note(optuna.trial.Trial(study, t._trial_id)) for t in trials}
        attrs = store.optuna_storage.get_study_system_attrs(study._study_id)
        charts = set(get_plotly_graph_objects(attrs))
        files = [json.loads(v)["filename"] for n, v in attrs.items() if ":artifacts:" in n]
        return get_note(study), notes, charts, sorted(files)


def test_a_run_of_the_library_fills_the_dashboard(study: Path) -> None:
    api.run(study)
    note, notes, charts, files = dashboard_of("library")
    assert note.startswith("## Recommended (simulated): ")
    assert {number: text.splitlines()[0] for number, text in notes.items()} == {
        0: "## trial 0: baseline",
        1: "## trial 1: complete",
    }
    assert "1-trials" in charts
    assert files == ["record.json", "record.json", "server.log", "server.log"]


def test_an_interrupted_run_leaves_a_dashboard_of_what_was_measured(study: Path) -> None:
    def interrupting(event: Event) -> None:
        if isinstance(event, StageChanged) and event.number == 1:
            raise Interrupted("interrupted")

    with pytest.raises(Interrupted):
        api.run(study, observer=interrupting)
    note, notes, charts, files = dashboard_of("library")
    assert note.startswith("## Nothing is recommended yet")
    assert notes[0].startswith("## trial 0: baseline")
    assert "1-trials" in charts
    assert files.count("record.json") >= 1


def test_a_run_that_never_began_leaves_nothing(study: Path) -> None:
    def refusing(event: Event) -> None:
        raise Interrupted("interrupted")

    loaded = api.load_study(study)
    missing = loaded.config.engine.model_copy(update={"executable": str(study.parent / "none")})
    broken = replace(loaded, config=loaded.config.model_copy(update={"engine": missing}))
    with pytest.raises(TunerError):
        api.run(broken, observer=refusing)
    assert not (study.parent / "results" / "library" / "study.db").exists()


def test_mistakes_raise(study: Path, study_yaml: Callable[..., str]) -> None:
    study.write_text(study_yaml(workload={"blocks": "two"}))
    with pytest.raises(ConfigError) as caught:
        api.load_study(study)
    assert caught.value.problems[0].path == "workload.blocks"


def test_what_never_ran_has_no_results(study: Path) -> None:
    with pytest.raises(StoreError):
        api.results(study)
    with pytest.raises(UsageError):
        api.results("unknown")


def results(recommendation: RecommendationRecord | None) -> api.Results:
    trials = [
        TrialRecord(number=0, state="baseline", value=1.0, metrics={"ttft_p95_ms": 9.0}),
        TrialRecord(number=1, state="complete", value=2.0, params={"steps": 3}),
    ]
    return api.Results("s", "maximize output_tokens_per_s", trials, recommendation)


def test_the_best_is_what_was_recommended() -> None:
    use = RecommendationRecord(verdict="use", trial=1)
    keep = RecommendationRecord(verdict="keep_baseline")
    assert results(use).best == results(use).trials[1]
    assert results(keep).best == results(keep).baseline
    assert results(None).best is None


@pytest.mark.skipif(importlib.util.find_spec("pandas") is not None, reason="pandas is here")
def test_without_pandas_the_frame_says_what_to_install() -> None:
    with pytest.raises(UsageError, match="must have pandas installed"):
        results(None).to_dataframe()


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is absent")
def test_the_frame_has_a_row_per_trial() -> None:
    frame = results(None).to_dataframe()
    assert list(frame["number"]) == [0, 1]
    assert frame["params.steps"].tolist()[1] == 3
    assert frame["metrics.ttft_p95_ms"].tolist()[0] == 9.0
