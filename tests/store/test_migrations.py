"""Our tables: made new, read from every released version, brought forward, never back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from sqlalchemy import Connection, inspect, text

from tuner.errors import StoreError
from tuner.store.database import Store, open_store
from tuner.store.migrations import STEPS, prepare, stored_version
from tuner.store.tables import SCHEMA_VERSION

GOLDEN = sorted((Path(__file__).parent / "golden").glob("schema_*.sql"))


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_every_released_database_is_read_and_continued(golden: Path, tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(golden.read_text())
    with open_store(f"sqlite:///{path}", create=True) as store:
        states = [(r.number, r.state, r.value, r.failure) for r in store.trials("golden")]
        assert states == [
            (0, "baseline", 5.0, None),
            (1, "complete", 7.0, None),
            (2, "failed", None, "out_of_memory"),
        ]
        assert store.trials("golden")[1].requested_args.flags == {"steps": 3}
        assert store.blocks("golden", 1)[0].records[0].text == "an answer"
        assert [launch.value for launch in store.confirmations("golden")] == [7.0]
        recommendation = store.recommendation("golden")
        assert recommendation is not None
        assert (recommendation.verdict, recommendation.low) == ("use", 1.3)
        assert store.newest("golden").document == {"uid": "u1"}
        assert store.fingerprint("f1") == {"host": "golden-host"}
        study = optuna.load_study(study_name="golden", storage=store.optuna_storage)
        assert [trial.value for trial in study.get_trials()] == [5.0, 7.0, 0.0]
        assert stored_version(store.engine) == SCHEMA_VERSION


def test_every_step_from_the_first_version_exists_and_has_a_golden_file() -> None:
    assert sorted(STEPS) == list(range(1, SCHEMA_VERSION))
    assert [path.stem for path in GOLDEN] == [f"schema_{n + 1}" for n in range(len(GOLDEN))]
    assert len(GOLDEN) == SCHEMA_VERSION


def add_column(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE tuner_trials ADD COLUMN colour TEXT"))


def fail(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE tuner_trials ADD COLUMN shape TEXT"))
    raise RuntimeError("power cut")


def columns(store: Store) -> set[str]:
    with store.engine.connect() as connection:
        return {column["name"] for column in inspect(connection).get_columns("tuner_trials")}


def test_steps_run_once_each_in_order(store: Store) -> None:
    steps = {SCHEMA_VERSION: add_column}
    target = SCHEMA_VERSION + 1
    done = prepare(store.engine, "db", steps=steps, target=target)
    assert done == [f"brought the tables of db to version {target}"]
    assert "colour" in columns(store)
    assert stored_version(store.engine) == target
    assert prepare(store.engine, "db", steps=steps, target=target) == []


def test_a_step_that_fails_leaves_the_version_before(store: Store) -> None:
    steps = {SCHEMA_VERSION: add_column, SCHEMA_VERSION + 1: fail}
    with pytest.raises(RuntimeError, match="power cut"):
        prepare(store.engine, "db", steps=steps, target=SCHEMA_VERSION + 2)
    assert stored_version(store.engine) == SCHEMA_VERSION + 1
    assert {"colour"} == columns(store) & {"colour", "shape"}


def test_a_newer_database_is_left_alone(store: Store, url: str) -> None:
    prepare(store.engine, "db", steps={SCHEMA_VERSION: add_column}, target=SCHEMA_VERSION + 1)
    store.close()
    for create in (True, False):
        with pytest.raises(StoreError, match=f"got version {SCHEMA_VERSION + 1}") as caught:
            open_store(url, create=create)
        assert "pip install -U speculative-tuner" in caught.value.hint
