"""Owns opening a database: SQLite with WAL and immediate transactions, PostgreSQL with pings.

Optuna's storage and our tables share one engine, so that both see the same rules.
"""

from __future__ import annotations

import logging
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
import sqlalchemy
from optuna.exceptions import ExperimentalWarning
from optuna.storages import RDBStorage
from sqlalchemy import Engine
from sqlalchemy.pool import NullPool

from tuner.errors import StoreError
from tuner.store.faults import OPENING_PAUSES_S, database_errors, persist
from tuner.store.files import file_errors
from tuner.store.urls import StorageUrl

BUSY_TIMEOUT_S = 60.0
OPENING_LOCK = 0x74756E66
"""Key of the PostgreSQL advisory lock under which tables are created."""


def quiet_optuna() -> None:
    """Optuna's messages go to the `optuna` logger alone, warnings and worse; no own handler."""
    optuna.logging.disable_default_handler()
    optuna.logging.enable_propagation()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", category=ExperimentalWarning)


def connect(url: StorageUrl, *, writable: bool, timeout_s: float = BUSY_TIMEOUT_S) -> RDBStorage:
    """Optuna's storage on this database, tables created only when `writable`.

    Raises:
        StoreError: missing, unreachable, read-only, damaged, or of another Optuna schema.
    """
    quiet_optuna()
    if url.path is not None:
        return _connect_sqlite(url, url.path, writable, timeout_s)
    return _connect_postgres(url, writable)


def _connect_postgres(url: StorageUrl, writable: bool) -> RDBStorage:
    options: dict[str, Any] = {"pool_pre_ping": True, "pool_recycle": 1800}
    if not writable:
        options["connect_args"] = {"options": "-c default_transaction_read_only=on"}
    try:
        gate = sqlalchemy.create_engine(url.url, poolclass=NullPool)
    except ImportError as error:
        raise StoreError(
            f"{url.shown}: must have its driver installed, got: {error}.",
            "Install it: pip install 'speculative-tuner[postgres]'",
        ) from error
    # Many workers may start at once: one after the other creates tables or finds them.
    connection = persist(gate.connect, url.shown, pauses=OPENING_PAUSES_S)
    with connection, database_errors(url.shown):
        connection.execute(sqlalchemy.text(f"SELECT pg_advisory_lock({OPENING_LOCK})"))
        _require_study(writable or sqlalchemy.inspect(connection).has_table("tuner_schema"), url)
        return _storage(_braces_doubled(url.text), options, url, writable)


def _connect_sqlite(url: StorageUrl, path: Path, writable: bool, timeout_s: float) -> RDBStorage:
    _check_file(path, writable)
    is_immutable = not writable and _needs_immutable(path, url)

    def open_connection() -> sqlite3.Connection:
        return open_sqlite(path, writable=writable, immutable=is_immutable, timeout_s=timeout_s)

    # The URL's text is only shown: the creator opens the file, whatever is in its name.
    return _storage("sqlite:///study.db", {"creator": open_connection}, url, writable)


def open_sqlite(
    path: Path, *, writable: bool, immutable: bool = False, timeout_s: float = BUSY_TIMEOUT_S
) -> sqlite3.Connection:
    """One connection; a reading one never creates the file."""
    mode = "rwc" if writable else "ro"
    target = f"file:{quote(str(path))}?mode={mode}" + ("&immutable=1" if immutable else "")
    connection = sqlite3.connect(
        target, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
    )
    try:
        if writable:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _check_file(path: Path, writable: bool) -> None:
    if path.is_dir():
        raise StoreError(f"{path}: must be a database file, got a folder.", "Name a file in it.")
    if writable:
        with file_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
    elif not path.is_file():
        raise StoreError(f"{path}: must be the database of a study, got no such file.",
                         "Check the path; reading never creates a database.")  # fmt: skip


def _needs_immutable(path: Path, url: StorageUrl) -> bool:
    """A WAL database in a folder that nobody can write to opens only as immutable.

    Raises:
        StoreError: it is no database, or none with a study.
    """
    for immutable in (False, True):
        with (
            database_errors(url.shown),
            closing(open_sqlite(path, writable=False, immutable=immutable)) as connection,
        ):
            try:
                found = connection.execute(_STUDY_TABLE).fetchone()
            except sqlite3.OperationalError:
                if immutable:
                    raise
                continue
        _require_study(found is not None, url)
        return immutable
    raise AssertionError("one of the two returned or raised")


_STUDY_TABLE = "SELECT 1 FROM sqlite_master WHERE name = 'tuner_schema'"


def _require_study(has_study: bool, url: StorageUrl) -> None:
    if not has_study:
        raise StoreError(
            f"{url.shown}: must be a study of the tuner, got a database without one.",
            "Check the path, or run the study first.",
        )


def _storage(text: str, options: dict[str, Any], url: StorageUrl, writable: bool) -> RDBStorage:
    def build() -> RDBStorage:
        # A reader checks the schema by its own means: Optuna's check writes to the file.
        return RDBStorage(
            text,
            engine_kwargs=options,
            skip_table_creation=not writable,
            skip_compatibility_check=True,
        )

    storage = persist(build, url.shown, pauses=OPENING_PAUSES_S)
    _check_schema(storage, url)
    if url.is_sqlite:
        _begin_explicitly(storage.engine, "BEGIN IMMEDIATE" if writable else "BEGIN")
    return storage


def _check_schema(storage: RDBStorage, url: StorageUrl) -> None:
    with database_errors(url.shown):
        present, expected = storage.get_current_version(), storage.get_head_version()
    if present != expected:
        known = present in storage.get_all_versions()
        raise StoreError(
            f"{url.shown}: must have Optuna's tables of version {expected} "
            f"(Optuna {optuna.__version__}), got {present}.",
            f"Back it up, then: optuna storage upgrade --storage {url.shown}"
            if known
            else "It was made by a newer Optuna: pip install -U optuna",
        )


def _begin_explicitly(engine: Engine, statement: str) -> None:
    """Take the write lock at the start: a read that later writes would fail at once instead."""

    @sqlalchemy.event.listens_for(engine, "begin")
    def _(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql(statement)

    engine.dispose()  # connections opened before the listener was there


def _braces_doubled(text: str) -> str:
    """Optuna puts the URL through str.format: braces in it must be doubled."""
    return text.replace("{", "{{").replace("}", "}}")
