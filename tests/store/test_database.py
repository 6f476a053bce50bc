"""The store: what goes in comes out, from one file that readers never create."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from sqlalchemy import func, select

from tuner.errors import StoreError
from tuner.measure.records import Block
from tuner.store.connect import open_sqlite
from tuner.store.database import Store, StudyMeta, open_store
from tuner.store.record import (
    ArgsRecord,
    ConfirmationLaunch,
    FinalistRecord,
    RecommendationRecord,
    Seconds,
    TrialRecord,
)
from tuner.store.tables import BlockRow, LaunchRow, RequestRow

Records = Callable[..., TrialRecord]
Blocks = Callable[..., Block]


def without_chunks(blocks: list[Block]) -> list[Block]:
    return [
        replace(block, records=tuple(replace(r, chunk_s=()) for r in block.records))
        for block in blocks
    ]


def count(store: Store, table: type[BlockRow | LaunchRow | RequestRow]) -> int:
    return store.read(lambda session: session.scalar(select(func.count()).select_from(table)) or 0)


def test_trials_come_back_equal_and_in_order(store: Store, make_record: Records) -> None:
    records = [make_record(n, reason="a" * n) for n in (3, 0, 11)]
    for record in records:
        store.save_trial("demo", record)
    assert store.trials("demo") == sorted(records, key=lambda r: r.number)
    assert store.trial("demo", 3) == records[0]
    assert store.trial("demo", 4) is None
    assert store.trials("other") == []


def test_blocks_come_back_with_their_requests(
    store: Store, make_record: Records, make_block: Blocks
) -> None:
    blocks = [make_block(0), make_block(1, text="nul \0 and 日本")]
    store.save_trial("demo", make_record(2), blocks)
    found = store.blocks("demo", 2)
    assert found[0] == without_chunks(blocks)[0]
    assert found[1].records[0].text == "nul � and 日本"
    assert store.blocks("demo", 3) == []


def test_storing_again_replaces(store: Store, make_record: Records, make_block: Blocks) -> None:
    store.save_trial("demo", make_record(2), [make_block(0), make_block(1)])
    store.save_trial("demo", make_record(2, state="pruned"), [make_block(0)])
    assert [r.state for r in store.trials("demo")] == ["pruned"]
    assert (count(store, LaunchRow), count(store, BlockRow), count(store, RequestRow)) == (1, 1, 2)


def test_a_trial_that_launched_nothing_has_no_launch(store: Store, make_record: Records) -> None:
    store.save_trial("demo", make_record(1, state="infeasible", seconds=Seconds()))
    assert count(store, LaunchRow) == 0


def test_confirmations_come_back_in_order(store: Store, make_block: Blocks) -> None:
    launches = [
        ConfirmationLaunch(round=o // 2, order=o, trial=t, digest="d", value=1.5, per_block=[1, 2])
        for o, t in enumerate([0, 5, 5, 0])
    ]
    for launch in reversed(launches):
        store.save_confirmation("demo", launch, [make_block(launch.order)])
    assert store.confirmations("demo") == launches
    assert store.confirm_blocks("demo", 3) == without_chunks([make_block(3)])


def test_the_latest_recommendation_counts(store: Store) -> None:
    assert store.recommendation("demo") is None
    first = RecommendationRecord(verdict="keep_baseline", reasons=["no server beat it"])
    second = RecommendationRecord(
        verdict="use", trial=5, ratio=1.4, low=1.3, high=1.5,
        server_args=ArgsRecord(flags={"steps": 3}),
        finalists=[FinalistRecord(trial=5, digest="d", ratio=1.4, low=1.3, high=1.5, launches=4)],
    )  # fmt: skip
    store.save_recommendation("demo", first)
    store.save_recommendation("demo", second)
    assert store.recommendation("demo") == second


def test_fingerprints_are_kept_by_digest(store: Store) -> None:
    store.save_fingerprint("abc", {"host": "gpu-3", "driver": "570"})
    store.save_fingerprint("abc", {"host": "gpu-3", "driver": "570"})
    assert store.fingerprint("abc") == {"host": "gpu-3", "driver": "570"}
    assert store.fingerprint("xyz") is None


def test_generations_of_a_study_are_found_by_its_name(store: Store) -> None:
    store.save_study_meta(StudyMeta("demo-2", "demo", 2, "later", {"x": [1, None]}))
    assert [meta.name for meta in store.generations("demo")] == ["demo", "demo-2"]
    assert store.newest("demo").document == {"x": [1, None]}
    assert store.newest("demo-2").generation == 2
    with pytest.raises(StoreError, match="study nothing"):
        store.newest("nothing")


def test_optuna_and_we_share_one_file(store: Store, url: str, make_record: Records) -> None:
    study = optuna.create_study(study_name="demo", storage=store.optuna_storage)
    study.tell(study.ask(), 1.0)
    store.save_trial("demo", make_record(0))
    with open_store(url, create=False) as reader:
        assert reader.trials("demo") == [make_record(0)]
        loaded = optuna.load_study(study_name="demo", storage=reader.optuna_storage)
        assert loaded.best_value == 1.0


# ---- reading ----------------------------------------------------------------------------------


def test_reading_never_creates_a_file(tmp_path: Path) -> None:
    path = tmp_path / "typo" / "study.db"
    with pytest.raises(StoreError, match=f"{path}: must be the database of a study"):
        open_store(f"sqlite:///{path}", create=False)
    assert list(tmp_path.iterdir()) == []


def test_reading_cannot_write(store: Store, url: str, make_record: Records) -> None:
    with open_store(url, create=False) as reader:
        with pytest.raises(StoreError, match="opened for writing"):
            reader.save_trial("demo", make_record(0))
        with pytest.raises(optuna.exceptions.StorageInternalError):
            optuna.create_study(storage=reader.optuna_storage)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "a database without one"), (b"this is text, not a database" * 50, "not a database")],
)
def test_what_is_no_study_is_explained(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "study.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=said):
        open_store(f"sqlite:///{path}", create=False)
    assert path.read_bytes() == content


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="got a folder"):
        open_store(f"sqlite:///{tmp_path}", create=True)


def test_an_optuna_database_of_another_program_is_told_apart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    storage = optuna.storages.RDBStorage(url)
    storage.engine.dispose()
    with pytest.raises(StoreError, match="a database without one"):
        open_store(url, create=False)


@contextmanager
def as_a_user_who_may_only_read(folder: Path) -> Iterator[None]:
    """Root may write anywhere: it becomes nobody for a while."""
    user = os.geteuid()
    folder.chmod(0o555)
    os.seteuid(65534 if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o755)


def test_a_read_only_folder_can_be_read_and_not_written() -> None:
    with tempfile.TemporaryDirectory() as name:
        url = f"sqlite:///{name}/study.db"
        with open_store(url, create=True) as writer:
            writer.save_study_meta(StudyMeta("demo", "demo", 1, "now"))
        with as_a_user_who_may_only_read(Path(name)):
            with open_store(url, create=False) as reader:
                assert reader.newest("demo").generation == 1
            with pytest.raises(StoreError, match="readonly database") as caught:
                open_store(url, create=True)
            assert "writable for this user" in caught.value.hint
            with pytest.raises(StoreError, match="unable to open"):
                open_store(f"sqlite:///{name}/other.db", create=True)
        assert [path.name for path in Path(name).iterdir()] == ["study.db"]


def test_odd_characters_in_the_path_are_no_template(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a{{SCHEMA_VERSION}}/b {{0}}%20?.db"
    with open_store(url, create=True) as opened:
        opened.save_study_meta(StudyMeta("x", "x", 1, "now"))
    with open_store(url, create=False) as reader:
        assert reader.newest("x").name == "x"
    assert (tmp_path / "a{SCHEMA_VERSION}/b {0}%20?.db").is_file()


# ---- writers ----------------------------------------------------------------------------------


def test_the_journal_is_a_wal_and_transactions_are_immediate(store: Store, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "study.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    seen: list[str] = []
    with store.engine.connect() as connection:
        assert connection.connection.driver_connection is not None
        connection.connection.driver_connection.set_trace_callback(seen.append)
        connection.exec_driver_sql("SELECT 1")
    assert seen[0] == "BEGIN IMMEDIATE"


def test_a_short_foreign_lock_is_waited_for(
    store: Store, tmp_path: Path, make_record: Records
) -> None:
    blocker = open_sqlite(tmp_path / "study.db", writable=True)
    blocker.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.4, lambda: blocker.execute("COMMIT"))
    release.start()
    store.save_trial("demo", make_record(1))
    release.join()
    blocker.close()
    assert store.trials("demo") == [make_record(1)]


def test_readers_do_not_disturb_a_writer(store: Store, url: str, make_record: Records) -> None:
    with open_store(url, create=False) as reader, reader.engine.connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM tuner_trials").fetchone()
        store.save_trial("demo", make_record(1))  # while the reader's transaction is open
    assert len(store.trials("demo")) == 1


def test_two_threads_ask_one_after_the_other(store: Store) -> None:
    order: list[str] = []
    inside = threading.Event()

    def second() -> None:
        inside.wait()
        with store.asking():
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with store.asking(), store.asking():
        inside.set()
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_full_disk_is_explained_and_loses_nothing(
    store: Store, tmp_path: Path, make_record: Records, make_block: Blocks
) -> None:
    store.save_trial("demo", make_record(0))
    with store.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")  # the same error as ENOSPC
        connection.commit()
    with pytest.raises(StoreError, match="disk is full") as caught:
        store.save_trial("demo", make_record(1), [make_block(i, "x" * 9000) for i in range(9)])
    assert "Free some space" in caught.value.hint
    assert store.trials("demo") == [make_record(0)]
    with closing(sqlite3.connect(tmp_path / "study.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_database_deleted_under_a_writer_is_noticed(store: Store, tmp_path: Path) -> None:
    store.require_file()
    assert store.integrity() == "ok"
    for path in tmp_path.glob("study.db*"):
        path.unlink()
    with pytest.raises(StoreError, match="must stay while a study runs"):
        store.require_file()
    (tmp_path / "study.db").touch()
    with pytest.raises(StoreError, match="deleted or replaced"):
        store.require_file()


def test_a_damaged_database_is_explained(url: str, tmp_path: Path, store: Store) -> None:
    store.close()
    path = tmp_path / "study.db"
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 40000)
    with pytest.raises(StoreError, match=r"malformed|not a database") as caught:
        open_store(url, create=True)
    assert "read back from their folders" in caught.value.hint


def test_another_optuna_schema_is_refused_with_the_command(
    url: str, tmp_path: Path, store: Store
) -> None:
    store.close()
    with closing(sqlite3.connect(tmp_path / "study.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num='v2.6.0.a'")
    for create in (True, False):
        with pytest.raises(StoreError, match=r"version v3.*got v2\.6\.0\.a") as caught:
            open_store(url, create=create)
        assert f"optuna storage upgrade --storage {url}" in caught.value.hint
    with closing(sqlite3.connect(tmp_path / "study.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num='v9.0.0.a'")
    with pytest.raises(StoreError) as caught:
        open_store(url, create=True)
    assert "pip install -U optuna" in caught.value.hint
