"""Database faults: tried again while they may pass, explained when they do not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import OperationalError

from tuner.errors import StoreError
from tuner.store.faults import database_errors, explain, is_transient, persist


def locked() -> OperationalError:
    return OperationalError("INSERT", {}, sqlite3.OperationalError("database is locked"))


def full() -> OperationalError:
    return OperationalError("INSERT", {}, sqlite3.OperationalError("database or disk is full"))


def internal(cause: Exception) -> StorageInternalError:
    try:
        raise StorageInternalError("typically happens due to invalid data") from cause
    except StorageInternalError as error:
        return error


def failing(times: int, error: Exception) -> Callable[[], str]:
    calls = iter(range(times))

    def action() -> str:
        if next(calls, None) is not None:
            raise error
        return "done"

    return action


@pytest.mark.parametrize("times", [0, 1, 3, 5])
def test_a_passing_fault_costs_only_time(times: int) -> None:
    pauses: list[float] = []
    assert persist(failing(times, internal(locked())), "db", pause=pauses.append) == "done"
    assert len(pauses) == times
    assert pauses == sorted(pauses)


def test_a_lasting_lock_is_given_up_and_explained() -> None:
    with pytest.raises(StoreError, match=r"db: must be usable, got: database is locked\.") as got:
        persist(failing(99, internal(locked())), "db", pause=lambda seconds: None)
    assert "holds the database" in got.value.hint


def test_a_full_disk_is_not_tried_again() -> None:
    def never(seconds: float) -> None:
        pytest.fail("paused")

    with pytest.raises(StoreError, match="disk is full") as caught:
        persist(failing(99, full()), "db", pause=never)
    assert "Free some space" in caught.value.hint


def test_other_errors_pass_through() -> None:
    with pytest.raises(ZeroDivisionError):
        persist(failing(1, ZeroDivisionError()), "db")


@pytest.mark.parametrize(
    ("text", "transient", "hint"),
    [
        ("database is locked", True, "lsof"),
        ("server closed the connection unexpectedly", True, ""),
        ("terminating connection due to administrator command", True, ""),
        ("attempt to write a readonly database", False, "writable"),
        ("unable to open database file", False, "folder exists"),
        ("file is not a database", False, "read back"),
        ("database disk image is malformed", False, "read back"),
        ("no such table: trials", False, "no study"),
        ("disk I/O error", False, "dmesg"),
    ],
)
def test_every_fault_is_told_apart(text: str, transient: bool, hint: str) -> None:
    error = OperationalError("SELECT", {}, sqlite3.OperationalError(text))
    assert is_transient(error) == transient
    explained = explain(error, "the database")
    assert text in explained.message
    assert hint in explained.hint


def test_the_block_form_explains_too() -> None:
    with pytest.raises(StoreError, match="not a database"), database_errors("x.db"):
        raise sqlite3.DatabaseError("file is not a database")
