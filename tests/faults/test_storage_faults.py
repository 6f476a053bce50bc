"""A disk, a folder or a database that fails while a study runs costs at most one trial."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any


def finished(study: Any) -> dict[str, str]:
    return {r.digest: r.state for r in study.records() if r.state in ("baseline", "complete")}


def test_a_full_disk_ends_the_run_and_loses_nothing(real_study: Any) -> None:
    code, said = real_study.run("StageChanged:stage=stopping,number=1", "small-files")
    assert code == 3, said
    assert "StoreError" in said
    assert real_study.orphans() == []
    before = real_study.records()
    assert [r.state for r in before][:1] == ["baseline"]
    code, said = real_study.run()
    assert code == 0, said
    assert sorted(finished(real_study).values()) == ["baseline", "complete"]
    assert real_study.records()[0] == before[0]
    assert real_study.integrity() == "ok"


def test_a_deleted_database_is_filled_from_the_files_and_nothing_is_measured_again(
    real_study: Any,
) -> None:
    code, said = real_study.run("ConfirmationProgressed:round=0,trial=1", "SIGKILL")
    assert code == -9, said
    before = real_study.records()
    for path in real_study.results.glob("study.db*"):
        path.unlink()
    code, said = real_study.run()
    assert code == 0, said
    assert real_study.records() == before
    assert said.count("TrialStarted") == 0
    assert sorted(real_study.launches()) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_results_folder_deleted_under_a_run_ends_it_and_the_next_starts_afresh(
    real_study: Any,
) -> None:
    code, said = real_study.run("BlockMeasured:number=1", f"remove:{real_study.results}")
    assert code == 3, said
    assert real_study.orphans() == []
    shutil.rmtree(real_study.results, ignore_errors=True)
    code, said = real_study.run()
    assert code == 0, said
    assert sorted(finished(real_study).values()) == ["baseline", "complete"]


LOCKED_S = 20.0 if os.environ.get("TUNER_ALL_CRASH_POINTS") else 5.0


def test_a_database_that_others_lock_is_waited_for(real_study: Any) -> None:
    """From the middle of a trial on: its end has to wait for the lock."""
    with real_study.start() as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "BlockMeasured\n":
                break
        path = Path(real_study.results / "study.db")
        holder = threading.Thread(target=hold, args=(path, LOCKED_S))
        holder.start()
        said = process.stdout.read()
        holder.join()
    assert process.returncode == 0, said
    assert sorted(finished(real_study).values()) == ["baseline", "complete"]
    assert said.count("TrialStarted") == 1, "the trial is not measured again"
    assert real_study.integrity() == "ok"


def hold(path: Path, seconds: float) -> None:
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        threading.Event().wait(seconds)
        connection.execute("ROLLBACK")
