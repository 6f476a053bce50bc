"""The library: load a study, run it, read its results. The command line does the same.

from tuner import api

done = api.run("studies/quickstart.yaml")
print(done.recommendation.verdict, done.best.params)
for trial in api.results("quickstart").trials:
    print(trial.number, trial.state, trial.value)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.config.loader import LoadedStudy
from tuner.config.loader import load_study as _load
from tuner.errors import UsageError
from tuner.events import Observer, ignore
from tuner.store.record import RecommendationRecord, TrialRecord
from tuner.store.stored import StoredStudy, read_study, study_path

__all__ = ["LoadedStudy", "Results", "load_study", "results", "run"]


@dataclass(frozen=True, slots=True)
class Results:
    """A stored study: its trials in order, and what was recommended."""

    name: str
    objective: str
    trials: Sequence[TrialRecord]
    recommendation: RecommendationRecord | None

    @property
    def baseline(self) -> TrialRecord | None:
        """The first measurement without speculation."""
        return next((trial for trial in self.trials if trial.state == "baseline"), None)

    @property
    def best(self) -> TrialRecord | None:
        """The recommended trial (the baseline, where that is kept); None before a confirmation."""
        if self.recommendation is None:
            return None
        if self.recommendation.trial is None:
            return self.baseline
        number = self.recommendation.trial
        return next((trial for trial in self.trials if trial.number == number), None)

    def to_dataframe(self) -> Any:
        """One row per trial, parameters as `params.NAME`, metrics as `metrics.NAME`.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise UsageError(
                "to_dataframe: must have pandas installed, got none.",
                "Install: pip install pandas",
            ) from error
        return pandas.DataFrame([_row(trial) for trial in self.trials])


def load_study(path: str | Path) -> LoadedStudy:
    """A validated study file; raises ConfigError with all its problems."""
    return _load(Path(path))


def run(
    study: LoadedStudy | str | Path, *, observer: Observer = ignore, new: bool = False
) -> Results:
    """Run a study to its recommendation, or resume it; fills its dashboard however it ends.

    Args:
        study: a loaded study, a study file, or the name of one under results/.
        observer: told of every event (see `tuner.events`), on this thread.
        new: start afresh beside what is stored.

    Raises:
        TunerError: of the kind that says who is at fault (see `tuner.errors`).
    """
    from tuner.insight.filling import filling_dashboard
    from tuner.search.loop import run_study

    loaded = study if isinstance(study, LoadedStudy) else _load(study_path(str(study)))
    with filling_dashboard(loaded):
        run_study(loaded, observer=observer, new=new)
    return results(loaded)


def results(study: LoadedStudy | str | Path) -> Results:
    """What is stored of a study; raises StoreError or UsageError when nothing is."""
    name = str(study.path) if isinstance(study, LoadedStudy) else str(study)
    return _results(read_study(name))


def _results(stored: StoredStudy) -> Results:
    objective = stored.title.partition(": ")[2]
    return Results(stored.name, objective, tuple(stored.trials), stored.recommendation)


def _row(trial: TrialRecord) -> dict[str, Any]:
    plain = ("number", "state", "failure", "value", "half_width", "vs_baseline",
             "acceptance_length", "digest")  # fmt: skip
    row = {name: getattr(trial, name) for name in plain}
    row |= {f"params.{name}": value for name, value in trial.params.items()}
    row |= {f"metrics.{name}": value for name, value in trial.metrics.items()}
    return row
