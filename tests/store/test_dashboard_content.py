"""Notes and charts that optuna-dashboard shows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from optuna_dashboard import get_note
from optuna_dashboard._custom_plot_data import get_plotly_graph_objects

from tuner.errors import StoreError
from tuner.store.dashboard_content import DashboardContent, save_content
from tuner.store.database import open_store

CHART = {"data": [{"x": [1] * 900}], "layout": {"title": {"text": "<b>"}}}


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with a study of two finished trials."""
    text = f"sqlite:///{tmp_path / 'study.db'}"
    with open_store(text, create=True) as store:
        study = optuna.create_study(study_name="s", storage=store.optuna_storage)
        study.tell(study.ask(), 1.0)
        study.tell(study.ask(), state=optuna.trial.TrialState.PRUNED)
    return text


def notes(url: str) -> list[str]:
    with open_store(url, create=False) as store:
        study = optuna.load_study(study_name="s", storage=store.optuna_storage)
        trials = study.get_trials(deepcopy=False)
        found = [get_note(study)]
        return found + [get_note(optuna.trial.Trial(study, t._trial_id)) for t in trials]


def test_notes_are_kept_for_finished_trials_too(url: str) -> None:
    save_content(url, "s", DashboardContent("study", {0: "first", 1: "second", 7: "nobody"}))
    assert notes(url) == ["study", "first", "second"]


def test_written_again_nothing_changes_and_new_texts_replace(url: str) -> None:
    for body in ("one", "one", "two"):
        save_content(url, "s", DashboardContent(body))
    assert notes(url)[0] == "two"
    with open_store(url, create=False) as store:
        attrs = store.optuna_storage.get_study_system_attrs(1)
    assert attrs["dashboard:note_ver"] == 2


def test_a_chart_longer_than_one_attribute(url: str) -> None:
    save_content(url, "s", DashboardContent(charts={"1-trials": CHART}))
    with open_store(url, create=False) as store:
        found = get_plotly_graph_objects(store.optuna_storage.get_study_system_attrs(1))
    assert list(found) == ["1-trials"]
    assert '"<b>"' in found["1-trials"]


def test_a_database_that_fails_is_named(url: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute(
            "CREATE TRIGGER breaks BEFORE INSERT ON study_system_attributes "
            "BEGIN INSERT INTO nowhere VALUES (1); END"
        )
    with pytest.raises(StoreError, match="must be usable, got: no such table"):
        save_content(url, "s", DashboardContent(note="a note"))
