"""Optuna's trials are read with the same care as they are written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tuner.errors import StoreError
from tuner.store.database import open_store
from tuner.store.optuna_trials import optuna_trials


@pytest.fixture
def study(tmp_path: Path) -> Iterator[optuna.Study]:
    with open_store(f"sqlite:///{tmp_path / 'study.db'}", create=True) as store:
        study = optuna.create_study(study_name="s", storage=store.optuna_storage)
        study.tell(study.ask(), 1.0)
        study.tell(study.ask(), state=TrialState.PRUNED)
        study.ask()
        yield study


def test_all_or_those_in_the_named_states(study: optuna.Study) -> None:
    assert [trial.number for trial in optuna_trials(study)] == [0, 1, 2]
    assert [trial.number for trial in optuna_trials(study, TrialState.RUNNING)] == [2]
    both = optuna_trials(study, TrialState.RUNNING, TrialState.COMPLETE)
    assert [trial.number for trial in both] == [0, 2]


def test_a_database_that_fails_is_named(study: optuna.Study, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "study.db")) as connection:
        connection.execute("DROP TABLE trials")
    with pytest.raises(StoreError, match=r"s: must be usable, got: no such table: trials\."):
        optuna_trials(study)
