"""Owns the version of our tables: created new, or brought forward step by step, never back.

To change a table: raise `tables.SCHEMA_VERSION`, add the step from the version before to
`STEPS`, and let tests/store/make_golden.py add a database of the version that was released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import Connection, Engine, inspect, select
from sqlalchemy.orm import Session

from tuner import __version__
from tuner.errors import StoreError
from tuner.store.tables import SCHEMA_VERSION, Base, SchemaRow

Step = Callable[[Connection], None]

STEPS: Mapping[int, Step] = {}
"""What brings version N to N + 1, by N; each runs in one transaction with its version mark."""


def stored_version(engine: Engine) -> int | None:
    """The version of our tables in this database; None when it has none."""
    with engine.connect() as connection:
        if not inspect(connection).has_table(SchemaRow.__tablename__):
            return None
        return connection.scalar(select(SchemaRow.version))


def prepare(
    engine: Engine, where: str, *, steps: Mapping[int, Step] = STEPS, target: int = SCHEMA_VERSION
) -> list[str]:
    """Create our tables or bring them to `target`; returns what was done, for people.

    Raises:
        StoreError: the database was written by a newer tuner.
    """
    version = stored_version(engine)
    if version is None:
        _create(engine, target)
        return []
    check_readable(version, where, target=target)
    done = []
    while version < target:
        _advance(engine, version, steps[version])
        version += 1
        done.append(f"brought the tables of {where} to version {version}")
    return done


def check_readable(version: int, where: str, *, target: int = SCHEMA_VERSION) -> None:
    """Refuse tables of a newer tuner; raises StoreError."""
    if version > target:
        raise StoreError(
            f"{where}: must have tables of version {target} or older, got version {version}.",
            "It was written by a newer tuner: pip install -U speculative-tuner",
        )


def _create(engine: Engine, version: int) -> None:
    with engine.begin() as connection:
        Base.metadata.create_all(connection)
        with Session(connection) as session:
            if session.get(SchemaRow, 1) is None:
                session.add(SchemaRow(id=1, version=version, tuner_version=__version__))
            session.commit()


def _advance(engine: Engine, version: int, step: Step) -> None:
    with engine.begin() as connection:
        step(connection)
        with Session(connection) as session:
            row = session.get_one(SchemaRow, 1)
            row.version, row.tuner_version = version + 1, __version__
            session.commit()
