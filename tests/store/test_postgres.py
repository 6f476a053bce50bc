"""The same store on a PostgreSQL server; run with TUNER_POSTGRES_URL=postgresql://…"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import optuna
import pytest
from sqlalchemy import create_engine, text

from tuner.errors import StoreError
from tuner.measure.records import Block
from tuner.store.database import Store, StudyMeta, open_store
from tuner.store.record import RecommendationRecord, TrialRecord


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    with open_store(postgres_url, create=True) as opened:
        opened.save_study_meta(StudyMeta("demo", "demo", 1, "now"))
        yield opened


def test_everything_comes_back(
    store: Store, make_record: Callable[..., TrialRecord], make_block: Callable[..., Block]
) -> None:
    record = make_record(3, reason="exit 1: nul \0 and \ud83d half a face", value=float("nan"))
    store.save_trial("demo", record, [make_block(0, text="nul \0"), make_block(1)])
    store.save_trial("demo", record, [make_block(0, text="nul \0")])
    store.save_recommendation("demo", RecommendationRecord(verdict="use", trial=3))
    store.save_fingerprint("f", {"host": "h"})
    found = store.trials("demo")[0]
    assert (found.number, found.reason) == (3, "exit 1: nul � and � half a face")
    assert [b.records[0].text for b in store.blocks("demo", 3)] == ["nul �"]
    assert store.newest("demo").name == "demo"
    assert store.is_shared


def test_a_reader_finds_what_a_writer_left(store: Store, postgres_url: str) -> None:
    optuna.create_study(study_name="demo", storage=store.optuna_storage)
    with open_store(postgres_url, create=False) as reader:
        assert reader.newest("demo").generation == 1
        with pytest.raises(StoreError, match="opened for writing"):
            reader.save_study_meta(StudyMeta("x", "x", 1, "now"))


def test_reading_an_empty_database_creates_nothing(postgres_url: str) -> None:
    with pytest.raises(StoreError, match="a database without one"):
        open_store(postgres_url, create=False)
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        tables = connection.execute(
            text("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        )
        assert tables.scalar() == 0
    engine.dispose()


def test_lost_connections_cost_nothing(
    store: Store, make_record: Callable[..., TrialRecord]
) -> None:
    study = optuna.create_study(study_name="demo", storage=store.optuna_storage)
    trial = study.ask()
    with store.engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    store.save_trial("demo", make_record(0))
    study.tell(trial, 1.0)
    assert store.trials("demo") == [make_record(0)]


def test_many_may_create_the_tables_at_once(postgres_url: str) -> None:
    failures: list[StoreError] = []

    def create() -> None:
        try:
            open_store(postgres_url, create=True).close()
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_one_worker_asks_at_a_time(store: Store, postgres_url: str) -> None:
    order: list[str] = []
    inside = threading.Event()
    with open_store(postgres_url, create=True) as other:

        def second() -> None:
            inside.wait()
            with other.asking():
                order.append("second")

        thread = threading.Thread(target=second)
        thread.start()
        with store.asking():
            inside.set()
            thread.join(0.2)
            order.append("first")
        thread.join()
    assert order == ["first", "second"]


def test_a_server_that_is_not_there_is_explained() -> None:
    pytest.importorskip("psycopg")
    url = "postgresql://nobody:secret@127.0.0.1:1/none"
    with pytest.raises(StoreError, match="got: connection") as caught:
        open_store(url, create=True)
    assert "secret" not in f"{caught.value.message}{caught.value.hint}"
    assert "Start the database server" in caught.value.hint
