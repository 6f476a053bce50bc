"""Owns what optuna-dashboard shows beside the trials: notes and charts, written to the database.

optuna-dashboard renders a note's Markdown with any HTML in it: texts come in escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna_dashboard import get_note, save_note, save_plotly_graph_object

from tuner.store.artifacts import ResultFiles
from tuner.store.database import open_store
from tuner.store.faults import database_errors
from tuner.store.optuna_trials import optuna_trials

STUDY_PREFIX = "artifacts:"
TRIAL_PREFIX = "dashboard:artifacts:"
"""Keys under which optuna-dashboard (0.21) looks for artifacts among a study's attributes."""


@dataclass(frozen=True, slots=True)
class DashboardContent:
    """The study's note, a note per trial number, Plotly documents by identifier, raw files."""

    note: str = ""
    trial_notes: Mapping[int, str] = field(default_factory=dict)
    charts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    files: ResultFiles | None = None


@dataclass(frozen=True, slots=True)
class _Chart:
    """A Plotly document where optuna-dashboard wants a figure: it only asks for its JSON."""

    document: Mapping[str, Any]

    def to_json(self) -> str:
        return json.dumps(self.document, allow_nan=False)


def save_content(url: str, study: str, content: DashboardContent) -> None:
    """Write the content; what is there already is replaced, what did not change is left alone.

    Raises:
        StoreError: the database cannot be written.
    """
    with open_store(url, create=True) as store, database_errors(store.where):
        found = optuna.load_study(study_name=study, storage=store.optuna_storage)
        _note(found, content.note)
        for frozen in optuna_trials(found):
            if frozen.number in content.trial_notes:
                trial = optuna.trial.Trial(found, frozen._trial_id)
                _note(trial, content.trial_notes[frozen.number])
        for name, document in content.charts.items():
            save_plotly_graph_object(found, _Chart(document), graph_object_id=name)
        if content.files is not None:
            _offer(found, content.files)


def _note(owner: optuna.Study | optuna.trial.Trial, body: str) -> None:
    if body and get_note(owner) != body:
        save_note(owner, body)


def _offer(study: optuna.Study, files: ResultFiles) -> None:
    """Name the files; attributes of the study, because finished trials take none."""
    storage, study_id = study._storage, study._study_id
    trial_ids = {trial.number: trial._trial_id for trial in optuna_trials(study)}
    known = storage.get_study_system_attrs(study_id)
    for identifier, offered in files.offered().items():
        prefix = STUDY_PREFIX
        if offered.trial is not None:
            prefix = f"{TRIAL_PREFIX}{trial_ids.get(offered.trial, -1)}:"
        meta = {
            "artifact_id": identifier,
            "filename": offered.path.name,
            "mimetype": offered.mimetype,
            "encoding": None,
        }
        text = json.dumps(meta)
        if known.get(prefix + identifier) != text:
            storage.set_study_system_attr(study_id, prefix + identifier, text)
