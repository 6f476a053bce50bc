"""The library's three functions."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner import api
from tuner.errors import ConfigError, StoreError, UsageError
from tuner.events import Event, TrialFinished
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
