"""Owns the rows that say which workers share a study and which devices they hold.

Times are the database's own clock: workers on several machines need not agree on theirs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, select, text
from sqlalchemy.orm import Session

from tuner.args import digest_of
from tuner.errors import StoreError
from tuner.store.database import Store
from tuner.store.faults import database_errors
from tuner.store.owner import Owner
from tuner.store.plain import dump_json
from tuner.store.tables import LeaseRow, WorkerRow


@dataclass(frozen=True, slots=True)
class Sighting:
    """A worker as the database last saw it, `age_s` seconds ago."""

    owner: Owner
    age_s: float


def worker_id(owner: Owner) -> str:
    """A worker's key: no two processes ever have the same."""
    return f"{owner.host[:60]}:{digest_of(owner.to_json())}"


def sight(store: Store, study: str, owner: Owner) -> None:
    """Note that a worker lives now."""

    def action(session: Session) -> None:
        row = WorkerRow(
            id=worker_id(owner),
            study=study,
            seen_s=_now(session),
            document=dump_json(owner.to_json()),
        )
        session.merge(row)

    store.write(action)


def leave(store: Store, owner: Owner) -> None:
    """Forget a worker that ends in order, and what it held."""

    def action(session: Session) -> None:
        session.execute(delete(WorkerRow).where(WorkerRow.id == worker_id(owner)))
        session.execute(delete(LeaseRow).where(LeaseRow.worker == worker_id(owner)))

    store.write(action)


def sightings(store: Store, study: str) -> list[Sighting]:
    """Every registered worker of a study."""

    def action(session: Session) -> list[Sighting]:
        now = _now(session)
        rows = session.scalars(select(WorkerRow).where(WorkerRow.study == study))
        return [
            Sighting(Owner.from_json(json.loads(row.document)), now - row.seen_s) for row in rows
        ]

    return store.read(action)


def leases(store: Store, host: str) -> dict[str, Owner]:
    """Who holds which device of a host."""

    def action(session: Session) -> dict[str, Owner]:
        rows = session.scalars(select(LeaseRow).where(LeaseRow.host == host))
        return {row.device: Owner.from_json(json.loads(row.document)) for row in rows}

    return store.read(action)


def take(store: Store, study: str, owner: Owner, devices: Sequence[str]) -> None:
    """Write down that a worker holds these devices of its host, whoever held them before."""

    def action(session: Session) -> None:
        for device in devices:
            session.merge(
                LeaseRow(
                    host=owner.host,
                    device=device,
                    worker=worker_id(owner),
                    study=study,
                    document=dump_json(owner.to_json()),
                )
            )

    store.write(action)


def release(store: Store, owner: Owner, devices: Sequence[str]) -> None:
    """Give devices back, those that are still this worker's."""
    mine = (LeaseRow.host == owner.host, LeaseRow.worker == worker_id(owner))
    query = delete(LeaseRow).where(*mine, LeaseRow.device.in_(devices))
    store.write(lambda session: session.execute(query))


@contextlib.contextmanager
def try_lock(store: Store, name: str) -> Iterator[bool]:
    """Hold a lock of this name among all workers; False when another one has it.

    A database of one tuner needs none: True. The lock ends with its holder's connection.
    """
    if not store.is_shared:
        yield True
        return
    key = int(digest_of(name)[:15], 16)
    with database_errors(store.where), store.engine.connect() as connection:
        taken = text("SELECT pg_try_advisory_lock(:key)")
        is_mine = bool(connection.scalar(taken, {"key": key}))
        connection.commit()  # no transaction may stay open for as long as the lock is held
        try:
            yield is_mine
        finally:
            if is_mine:
                with contextlib.suppress(StoreError), database_errors(store.where):
                    connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": key})


def _now(session: Session) -> float:
    is_sqlite = session.get_bind().dialect.name == "sqlite"
    clock = "julianday('now') * 86400.0" if is_sqlite else "extract(epoch FROM clock_timestamp())"
    return float(session.scalar(text(f"SELECT {clock}")) or 0.0)
