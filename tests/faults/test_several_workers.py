"""Workers of one study on a real PostgreSQL (TUNER_POSTGRES_URL), one of them killed."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest


@pytest.fixture
def shared_study(real_study: Any, postgres_url: str) -> Any:
    """The study on a fresh database."""
    real_study.url = postgres_url
    return real_study


def test_a_killed_workers_trial_is_given_back_and_one_worker_confirms(shared_study: Any) -> None:
    shared_study.write(steps="[2, 3, 4, 5]")
    first = shared_study.start()
    for line in first.stdout:
        if line == "TrialFinished\n":
            break
    killed = shared_study.start("BlockMeasured", "SIGKILL", "--worker")
    second = shared_study.start("", "", "--worker")
    said = [process.communicate(timeout=100)[0] for process in (first, killed, second)]
    assert [first.returncode, second.returncode] == [0, 0], said
    assert killed.returncode in (-signal.SIGKILL, 0)  # 0: the others left it nothing to measure
    records = shared_study.records()
    measured = Counter(r.digest for r in records if r.state in ("baseline", "complete"))
    assert sorted(measured.values()) == [1, 1, 1, 1, 1]
    interrupted = [r for r in records if r.state == "failed"]
    assert len(interrupted) == (killed.returncode != 0)
    assert {r.failure for r in interrupted} <= {"interrupted"}
    launches = shared_study.launches()
    assert len(launches) == len(set(launches)) == 4
    assert shared_study.orphans() == []


def test_one_database_file_is_no_place_for_workers(real_study: Any) -> None:
    with real_study.start("", "", "--worker") as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "storage: must be PostgreSQL for several workers, got sqlite:///" in said
