"""Owns `StoredStudy`, all that is kept of a study, and what a study is called by its users.

STUDY is a study file, or the name of one under results/. Reading never creates anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.config.loader import LoadedStudy, load_study
from tuner.errors import UsageError
from tuner.store.database import open_store
from tuner.store.place import StudyPlace, find_place, place_of
from tuner.store.record import ConfirmationLaunch, RecommendationRecord, TrialRecord

SIMULATED_KINDS = ("fake", "replay")
"""Engine kinds whose measurements are of no real server."""


@dataclass(frozen=True, slots=True)
class StoredStudy:
    """Everything the database holds about the newest generation of a study."""

    name: str
    trials: list[TrialRecord]
    recommendation: RecommendationRecord | None = None
    confirmations: list[ConfirmationLaunch] = field(default_factory=list)
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """The metric that is optimised."""
        return self._objective()[1]

    @property
    def direction(self) -> str:
        """`maximize` or `minimize`."""
        return self._objective()[0]

    @property
    def is_simulated(self) -> bool:
        """True when no real server was measured: replayed, or the fake server."""
        kind = self.document.get("fields", {}).get("engine.kind", "")
        return kind in SIMULATED_KINDS or any(trial.is_simulated for trial in self.trials)

    @property
    def load(self) -> str:
        """Label of the load point at which the objective is read."""
        return str(self.document.get("fields", {}).get("objective.at", ""))

    @property
    def title(self) -> str:
        """`NAME: maximize output_tokens_per_s at c1`."""
        where = f" at {self.load}" if self.load else ""
        return f"{self.name}: {self.direction} {self.metric}{where}"

    @property
    def baseline(self) -> TrialRecord | None:
        """Trial 0, once it is measured."""
        return next((trial for trial in self.trials if trial.state == "baseline"), None)

    def trial(self, number: int) -> TrialRecord:
        """One trial; raises UsageError naming those there are."""
        for trial in self.trials:
            if trial.number == number:
                return trial
        last = f"0 to {self.trials[-1].number}" if self.trials else "none"
        raise UsageError(
            f"study {self.name}: must have a trial {number}, got {last}.",
            f"List them with `tuner show {self.name}`.",
        )

    def _objective(self) -> tuple[str, str]:
        text = str(self.document.get("fields", {}).get("objective", ""))
        direction, _, metric = text.partition(" ")
        return direction or "maximize", metric or "output_tokens_per_s"


def find_study(study: str) -> tuple[StudyPlace, LoadedStudy | None]:
    """Where a study lives: STUDY is a study file, or the name of one under results/.

    Raises:
        ConfigError: it is a file with mistakes.
        UsageError: it is neither.
    """
    path = Path(study)
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        loaded = load_study(_existing(path))
        return place_of(loaded.config.name, loaded.config.storage), loaded
    return find_place(study), None


def study_path(study: str) -> Path:
    """The study file that STUDY means; raises UsageError when there is none."""
    path = Path(study)
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        return _existing(path)
    return study_file_of(read_study(study))


def study_file_of(stored: StoredStudy) -> Path:
    """The file that a stored study was made from; raises UsageError when it is gone."""
    path = Path(str(stored.document.get("study_file", "")))
    if not path.is_file():
        raise UsageError(
            f"study {stored.name}: must be given as its study file, got only its name.",
            f"It was made from {path}, which is not there." if path.name else "Give the file.",
        )
    return path


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UsageError(
            f"{path}: must be a study file, got nothing at {path.absolute()}.",
            "Check the path, or write a study with `tuner init`.",
        )
    return path


def newest_name(place: StudyPlace) -> str:
    """The name of the newest generation; raises StoreError when there is none."""
    with open_store(place.url, create=False) as store:
        return store.newest(place.name).name


def read_study(study: str) -> StoredStudy:
    """The stored study that STUDY names; reading never creates anything."""
    return stored_at(find_study(study)[0])


def stored_at(place: StudyPlace) -> StoredStudy:
    """The newest generation of the study that lives there; raises StoreError when none does."""
    with open_store(place.url, create=False) as store:
        meta = store.newest(place.name)
        found = StoredStudy(
            name=meta.name,
            trials=store.trials(meta.name),
            recommendation=store.recommendation(meta.name),
            confirmations=store.confirmations(meta.name),
            document=meta.document,
        )
    return _marked(found) if found.is_simulated else found


def _marked(study: StoredStudy) -> StoredStudy:
    """The study with the mark on everything that is shown or exported of it."""
    mark = {"is_simulated": True}
    recommendation = study.recommendation
    return replace(
        study,
        trials=[trial.model_copy(update=mark) for trial in study.trials],
        recommendation=recommendation and recommendation.model_copy(update=mark),
    )
