"""Owns what goes wrong with a database: what is worth another try, and how it is explained."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tuner.errors import StoreError

T = TypeVar("T")

DATABASE_ERRORS = (SQLAlchemyError, StorageInternalError, sqlite3.Error)

PAUSES_S = (0.1, 0.3, 1.0, 3.0, 5.0)
"""While a study runs: a restart of the database server is sat out."""

OPENING_PAUSES_S = (0.1, 0.3, 1.0)
"""Before anything runs: a wrong host is to be said soon."""

_TRANSIENT = (
    "database is locked", "database table is locked", "database schema is locked", "busy",
    "server closed the connection", "connection already closed", "the connection is closed",
    "connection refused", "terminating connection", "connection is lost", "adminshutdown",
    "deadlock detected", "could not serialize", "starting up", "shutting down",
    "connection failed", "consuming input failed",
)  # fmt: skip

_EXPLAINED = (
    ("disk is full", "Free some space on that disk and run again: finished trials are kept."),
    ("no space left", "Free some space on that disk and run again: finished trials are kept."),
    ("readonly database", "Make the database file and its folder writable for this user."),
    ("unable to open database file", "Check that the folder exists and is writable."),
    ("is locked", "Another program holds the database: close it (see lsof) and run again."),
    (
        "not a database",
        "Move the file away and run again: finished trials are read back from their folders.",
    ),
    (
        "malformed",
        "Move the file away and run again: finished trials are read back from their folders.",
    ),
    ("disk i/o error", "Check the disk (dmesg), then run again: finished trials are kept."),
    ("no such table", "This file is no study of the tuner; check the path."),
    ("authentication failed", "Check user and password of the storage URL."),
    ("connection refused", "Start the database server, or check host and port."),
    ("does not exist", "Create the database first (createdb)."),
)


def causes(error: BaseException) -> str:
    """The texts of an error and of everything below it, in lower case."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None:
        text = str(current.orig) if isinstance(current, DBAPIError) else str(current)
        parts.append(f"{type(current).__name__}: {text}")
        current = current.__cause__ or current.__context__
    return "\n".join(parts).lower()


def is_transient(error: BaseException) -> bool:
    """True when the same call may succeed a moment later."""
    text = causes(error)
    return any(sign in text for sign in _TRANSIENT)


def explain(error: BaseException, where: str) -> StoreError:
    """The error as users see it: the deepest text, and what to do about it."""
    text = causes(error)
    hint = next((hint for sign, hint in _EXPLAINED if sign in text), "")
    return StoreError(f"{where}: must be usable, got: {_root(error)}.", hint)


def _root(error: BaseException) -> str:
    current = error
    while (below := current.__cause__) is not None:
        current = below
    origin = getattr(current, "orig", None)
    lines = str(origin or current).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(current).__name__


@contextlib.contextmanager
def database_errors(where: str) -> Iterator[None]:
    """Turn every database error into a StoreError that says what to do."""
    try:
        yield
    except DATABASE_ERRORS as error:
        raise explain(error, where) from error


def persist(
    action: Callable[[], T],
    where: str,
    *,
    pauses: Sequence[float] = PAUSES_S,
    pause: Callable[[float], None] = time.sleep,
) -> T:
    """Run a database call, a bounded number of times while its fault may pass.

    Args:
        action: the call; it must do nothing twice.
        where: the database or the trial, for the message.
        pauses: seconds between two tries.
        pause: how to wait.

    Raises:
        StoreError: it kept failing, or the fault is not one that passes.
    """
    for seconds in pauses:
        try:
            return action()
        except DATABASE_ERRORS as error:
            if not is_transient(error):
                raise explain(error, where) from error
            pause(seconds)
    with database_errors(where):
        return action()
