"""Owns the store: Optuna's tables and ours in one database, written with bounded retries.

Knows no search: what a stored trial means to Optuna is told in search/telling.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from optuna.storages import RDBStorage
from sqlalchemy import Engine, delete, select, text
from sqlalchemy.orm import Session, selectinload

from tuner.errors import StoreError
from tuner.measure.records import Block
from tuner.store import rows
from tuner.store.connect import BUSY_TIMEOUT_S, connect
from tuner.store.faults import database_errors, persist
from tuner.store.migrations import check_readable, prepare, stored_version
from tuner.store.plain import dump_json
from tuner.store.record import ConfirmationLaunch, RecommendationRecord, TrialRecord, record_text
from tuner.store.tables import (
    BlockRow,
    FingerprintRow,
    LaunchRow,
    RecommendationRow,
    RequestRow,
    StudyRow,
    TrialRow,
)
from tuner.store.urls import StorageUrl, parse_url

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StudyMeta:
    """What a study was made with; `document` is plain JSON (identity, config text, versions)."""

    name: str
    series: str
    generation: int
    created_utc: str
    document: Mapping[str, Any] = field(default_factory=dict)


class Store:
    """One open database. Every write is one transaction, tried again while a fault may pass."""

    def __init__(self, storage: RDBStorage, place: StorageUrl, *, writable: bool) -> None:
        self.optuna_storage = storage
        self.where = place.shown
        self.path = place.path
        self.writable = writable
        self.is_shared = not place.is_sqlite
        self._inode = _inode(place.path) if place.path else None
        self.notes: tuple[str, ...] = ()
        self._ask_lock = RLock()

    @property
    def engine(self) -> Engine:
        """The engine that Optuna's tables and ours share."""
        return self.optuna_storage.engine

    def close(self) -> None:
        """Give every connection back; the store is of no use afterwards."""
        self.optuna_storage.remove_session()
        self.engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def require_file(self) -> None:
        """Refuse to go on when an SQLite file was deleted or replaced under the open connection.

        Raises:
            StoreError: what is written now would be lost with the last connection.
        """
        if self.path is not None and _inode(self.path) != self._inode:
            raise StoreError(
                f"{self.path}: must stay while a study runs, got it deleted or replaced.",
                "Run again: trials whose folders are still there are read back.",
            )

    def integrity(self) -> str:
        """`ok`, or the first problem the database finds in its own pages."""
        if self.is_shared:
            return "ok"  # PostgreSQL checks its pages as it reads them
        check = text("PRAGMA integrity_check(1)")
        return str(self.read(lambda session: session.scalar(check)))

    # ---- studies -----------------------------------------------------------------------------
    def study_meta(self, name: str) -> StudyMeta | None:
        """The study of exactly this name."""
        return self.read(lambda session: _meta(session.get(StudyRow, name)))

    def generations(self, series: str) -> list[StudyMeta]:
        """Every study of a series, the newest last."""
        query = select(StudyRow).where(StudyRow.series == series).order_by(StudyRow.generation)
        return self.read(
            lambda session: [m for row in session.scalars(query) if (m := _meta(row))]
        )

    def newest(self, name: str) -> StudyMeta:
        """The newest study of a series, or the study of this name; raises StoreError."""
        found = self.generations(name)
        meta = found[-1] if found else self.study_meta(name)
        if meta is None:
            raise StoreError(f"{self.where}: must hold a study {name}, got none of that name.",
                             "Run the study first, or check its name.")  # fmt: skip
        return meta

    def save_study_meta(self, meta: StudyMeta) -> None:
        """Create a study's row, or replace its document."""
        self.write(
            lambda session: session.merge(
                StudyRow(
                    name=meta.name,
                    series=meta.series,
                    generation=meta.generation,
                    created_utc=meta.created_utc,
                    document=dump_json(meta.document),
                )
            )
        )

    # ---- trials ------------------------------------------------------------------------------
    def save_trial(self, study: str, record: TrialRecord, blocks: Sequence[Block] = ()) -> None:
        """Store a finished trial and the launch it cost; storing it again replaces it."""

        def action(session: Session) -> None:
            session.merge(rows.trial_row(study, record))
            if blocks or record.seconds.launch > 0:
                _replace_launch(session, rows.search_launch(study, record, blocks))

        self.write(action)

    def amend_trial(self, study: str, record: TrialRecord) -> None:
        """Replace the record of a stored trial; its launch and blocks stay."""
        self.write(lambda session: session.merge(rows.trial_row(study, record)))

    def trials(self, study: str, *, besides: Collection[int] = ()) -> list[TrialRecord]:
        """Every finished trial, in order of number, but those the caller knows already."""
        query = select(TrialRow.document).where(TrialRow.study == study).order_by(TrialRow.number)
        if besides:
            query = query.where(TrialRow.number.not_in(sorted(besides)))
        documents = self.read(lambda session: list(session.scalars(query)))
        return [TrialRecord.model_validate_json(document) for document in documents]

    def trial(self, study: str, number: int) -> TrialRecord | None:
        """One finished trial."""
        row = self.read(lambda session: session.get(TrialRow, (study, number)))
        return None if row is None else TrialRecord.model_validate_json(row.document)

    def blocks(self, study: str, number: int) -> list[Block]:
        """The blocks of a trial with their requests; chunk times only in the raw file."""
        return self._blocks(study, "search", number)

    # ---- confirmation ------------------------------------------------------------------------
    def save_confirmation(
        self, study: str, launch: ConfirmationLaunch, blocks: Sequence[Block] = ()
    ) -> None:
        """Store one launch of the confirmation; storing it again replaces it."""
        row = rows.confirm_launch
        self.write(lambda session: _replace_launch(session, row(study, launch, blocks)))

    def confirmations(self, study: str) -> list[ConfirmationLaunch]:
        """Every launch of the confirmation, in order."""
        query = (
            select(LaunchRow.document)
            .where(LaunchRow.study == study, LaunchRow.purpose == "confirm")
            .order_by(LaunchRow.order)
        )
        documents = self.read(lambda session: list(session.scalars(query)))
        return [ConfirmationLaunch.model_validate_json(document) for document in documents]

    def confirm_blocks(self, study: str, order: int) -> list[Block]:
        """The blocks of one confirmation launch."""
        return self._blocks(study, "confirm", order)

    def save_recommendation(self, study: str, record: RecommendationRecord) -> None:
        """Add the end of a confirmation; earlier ones stay as history."""
        self.write(
            lambda session: session.add(
                RecommendationRow(
                    study=study,
                    verdict=record.verdict,
                    finished_utc=record.finished_utc,
                    document=record_text(record),
                )
            )
        )

    def recommendation(self, study: str) -> RecommendationRecord | None:
        """The latest recommendation."""
        query = (
            select(RecommendationRow.document)
            .where(RecommendationRow.study == study)
            .order_by(RecommendationRow.id.desc())
            .limit(1)
        )
        document = self.read(lambda session: session.scalar(query))
        return None if document is None else RecommendationRecord.model_validate_json(document)

    # ---- fingerprints ------------------------------------------------------------------------
    def save_fingerprint(self, digest: str, fields: Mapping[str, str]) -> None:
        """Keep a fingerprint under its digest."""
        row = FingerprintRow(
            digest=digest, host=str(fields.get("host", "")), document=dump_json(fields)
        )
        self.write(lambda session: session.merge(row))

    def fingerprint(self, digest: str) -> dict[str, str] | None:
        """The fields of a fingerprint."""
        row = self.read(lambda session: session.get(FingerprintRow, digest))
        return None if row is None else dict(json.loads(row.document))

    # ---- transactions ------------------------------------------------------------------------
    def write(self, action: Callable[[Session], object]) -> None:
        """Run a writing action in one transaction, again while a fault may pass.

        Raises:
            StoreError: opened for reading, disk full, locked for too long, unreachable.
        """
        if not self.writable:
            raise StoreError(
                f"{self.where}: must be opened for writing, got a reading store.",
                "Change a study with `tuner run` or `tuner confirm`.",
            )

        def attempt() -> None:
            with Session(self.engine) as session, session.begin():
                action(session)

        persist(attempt, self.where)

    def read(self, action: Callable[[Session], T]) -> T:
        """Run a reading action in one transaction; rows stay readable afterwards."""

        def attempt() -> T:
            with Session(self.engine, expire_on_commit=False) as session, session.begin():
                return action(session)

        return persist(attempt, self.where)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """One asker at a time: among the threads here, on PostgreSQL among all workers."""
        with self._ask_lock, contextlib.ExitStack() as stack:
            if self.is_shared:
                stack.enter_context(self._advisory_lock())
            yield

    @contextlib.contextmanager
    def _advisory_lock(self, key: int = 0x74756E65) -> Iterator[None]:
        with database_errors(self.where), self.engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": key})
            try:
                yield
            finally:
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": key})

    def _blocks(self, study: str, purpose: str, order: int) -> list[Block]:
        query = (
            select(BlockRow)
            .join(LaunchRow)
            .where(
                LaunchRow.study == study, LaunchRow.purpose == purpose, LaunchRow.order == order
            )
            .order_by(BlockRow.position)
            .options(selectinload(BlockRow.requests))
        )
        return self.read(lambda session: [rows.block_of(row) for row in session.scalars(query)])


def open_store(url: str, *, create: bool, timeout_s: float = BUSY_TIMEOUT_S) -> Store:
    """Open a database: for writing, created when missing, or for reading what exists.

    Args:
        url: `sqlite:///PATH` or `postgresql+psycopg://…`.
        create: True writes; False only reads, and a missing file is an error.
        timeout_s: how long another writer is waited for.

    Raises:
        StoreError: it cannot be used; the message holds the absolute path.
    """
    place = parse_url(url)
    storage = connect(place, writable=create, timeout_s=timeout_s)
    store = Store(storage, place, writable=create)
    try:
        _prepare(store)
    except StoreError:
        store.close()
        raise
    return store


def _prepare(store: Store) -> None:
    if store.writable:
        with store.asking():
            store.notes = tuple(persist(lambda: prepare(store.engine, store.where), store.where))
        return
    with database_errors(store.where):
        version = stored_version(store.engine)
    check_readable(version or 0, store.where)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _meta(row: StudyRow | None) -> StudyMeta | None:
    if row is None:
        return None
    document = json.loads(row.document)
    return StudyMeta(row.name, row.series, row.generation, row.created_utc, document)


def _replace_launch(session: Session, row: LaunchRow) -> None:
    old = session.scalars(
        select(LaunchRow.id).where(
            LaunchRow.study == row.study,
            LaunchRow.purpose == row.purpose,
            LaunchRow.order == row.order,
        )
    ).all()
    if old:
        blocks = select(BlockRow.id).where(BlockRow.launch_id.in_(old))
        session.execute(delete(RequestRow).where(RequestRow.block_id.in_(blocks)))
        session.execute(delete(BlockRow).where(BlockRow.launch_id.in_(old)))
        session.execute(delete(LaunchRow).where(LaunchRow.id.in_(old)))
    session.add(row)
