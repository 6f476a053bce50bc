"""Killed at any step, a study loses nothing and measures nothing twice.

Each case forks, runs a few trials in the child, and kills the child with SIGKILL just before its
n-th step: a file renamed into place, a transaction committed. The parent then goes on.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from optuna.trial import TrialState
from sqlalchemy import Connection, Engine

TRIALS = 2
PARTS = 3


class Steps:
    """Counts steps and kills this process before the one that was chosen."""

    def __init__(self, fatal: int) -> None:
        self.fatal = fatal
        self.count = 0
        self.seen: set[tuple[object, ...]] = set()
        sys.addaudithook(self._audit)
        sqlalchemy.event.listen(Engine, "commit", self._commit)

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename":
            self.step()

    def _commit(self, connection: Connection) -> None:
        """Only a transaction that wrote something is a step; reading ones change nothing."""
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        version = raw.execute("PRAGMA schema_version").fetchone()
        state = (id(raw), raw.total_changes, version)
        if state not in self.seen:
            self.seen.add(state)
            self.step()

    def step(self) -> None:
        self.count += 1
        if self.count == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)


def copy_of(workshop: Any, folder: Path) -> Any:
    """The same study in another folder."""
    shutil.copytree(workshop.folder / "demo", folder / "demo")
    return type(workshop)(folder)


def count_steps(workshop: Any, scratch: Path) -> int:
    """How many steps an undisturbed run of a created study has."""
    other = copy_of(workshop, scratch)
    path = scratch / "steps"

    def action() -> None:
        steps = Steps(0)
        with other.opened() as opened:
            other.run(opened, limit=TRIALS)
        path.write_text(str(steps.count))

    assert workshop.in_child(action) == 0
    return int(path.read_text())


def check(workshop: Any) -> None:
    """Everything that must hold once the study has been opened and run on."""
    with workshop.opened() as opened:
        done = len([r for r in opened.records() if r.state in ("baseline", "complete")])
        workshop.run(opened, limit=TRIALS + 1 - done)
        records = opened.records()
        trials = opened.study.get_trials()
        assert [r.number for r in records] == [t.number for t in trials]
        assert all(trial.state.is_finished() for trial in trials)
        measured = Counter(r.digest for r in records if r.state in ("baseline", "complete"))
        assert set(measured.values()) == {1}
        assert len(measured) == TRIALS + 1
        assert records[0].state == "baseline" or records[0].failure == "interrupted"
        for record, trial in zip(records, trials, strict=True):
            assert (trial.state is TrialState.COMPLETE) == (record.value is not None)
            assert trial.value == record.value
            assert opened.results.read_trial(record.number) == record
        interrupted = [r for r in records if r.failure == "interrupted"]
        assert len(interrupted) <= 1
    with closing(sqlite3.connect(workshop.folder / "demo/study.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def kill_before(fatal: int, workshop: Any) -> None:
    """Open the study and run trials in a child that dies just before its n-th step."""

    def action() -> None:
        Steps(fatal)
        with workshop.opened() as opened:
            workshop.run(opened, limit=TRIALS)

    assert workshop.in_child(action) == -signal.SIGKILL


def test_killed_while_a_study_is_created(workshop: Any, tmp_path: Path) -> None:
    for fatal in (1, 2, 3, 5, 8, 11, 13):
        (tmp_path / str(fatal)).mkdir()
        other = type(workshop)(tmp_path / str(fatal))
        kill_before(fatal, other)
        check(other)


@pytest.mark.parametrize("part", range(PARTS))
def test_killed_before_every_step_of_a_trial(workshop: Any, tmp_path: Path, part: int) -> None:
    with workshop.opened():
        pass  # created once; each case starts from a copy
    steps = count_steps(workshop, tmp_path / "undisturbed")
    assert steps > 30
    for fatal in range(1 + part, steps + 1, PARTS):
        other = copy_of(workshop, tmp_path / f"killed-{fatal}")
        kill_before(fatal, other)
        check(other)
