"""A run that is killed at a step of the trial line goes on as if nothing had happened.

Same finished trials, nothing measured twice, no server left, a sound database. Every step with
TUNER_ALL_CRASH_POINTS=1; a few of them otherwise.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Any

import pytest

STAGES = ("launching", "warming_up", "measuring", "stopping")
EVERY = [
    "StudyOpened",
    *(f"TrialStarted:number={number}" for number in (0, 1)),
    *(f"StageChanged:stage={stage},number={number}" for stage in STAGES for number in (0, 1)),
    "BlockMeasured:number=1",
    "TrialFinished:number=0",
    "TrialFinished:number=1",
    "ConfirmationProgressed:round=0,trial=1",
    "ConfirmationProgressed:round=1,trial=0",
    "RunFinished",
]
FEW = [
    ("StageChanged:stage=launching,number=1", "SIGKILL"),
    ("StageChanged:stage=stopping,number=0", "SIGKILL"),
    ("BlockMeasured:number=1", "SIGINTx2"),
    ("ConfirmationProgressed:round=0,trial=1", "SIGKILL"),
]
ALL = [(step, how) for step in EVERY for how in ("SIGKILL", "SIGTERM", "SIGINTx2")]
CASES = ALL if os.environ.get("TUNER_ALL_CRASH_POINTS") else FEW


@pytest.mark.parametrize(("step", "how"), CASES)
def test_the_next_run_ends_the_same(real_study: Any, step: str, how: str) -> None:
    code, said = real_study.run(at=step, do=how)
    if how == "SIGKILL":
        assert code == -signal.SIGKILL, said
    else:
        assert code == 130, said
        assert real_study.orphans() == []
    code, said = real_study.run()
    assert code == 0, said
    check(real_study)


def check(study: Any) -> None:
    """What holds after a run to the end, whatever happened before it."""
    assert study.orphans() == []
    assert study.integrity() == "ok"
    records = study.records()
    measured = Counter(r.digest for r in records if r.state in ("baseline", "complete"))
    assert sorted(measured.values()) == [1, 1]
    assert [r.state for r in records if r.state not in ("baseline", "complete")] in (
        [],
        ["failed"],
    )
    assert {r.failure for r in records if r.state == "failed"} <= {"interrupted"}
    assert [r.number for r in records] == list(range(len(records)))
    best = next(r.number for r in records if r.state == "complete")
    assert sorted(study.launches()) == [(0, 0), (0, best), (1, 0), (1, best)]
    first = next(r for r in records if r.state == "complete")
    assert first.vs_baseline is not None
