"""The baseline's launches among stored trials: everyone who asks is told the same."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.store.baselines import launch_places, sentinels_of
from tuner.store.record import LoadPointRecord, TrialRecord

STATES = ["baseline", "infeasible", "complete", "reused", "baseline", "failed", "baseline"]


def trial(number: int, state: Any, speed: float = 100.0) -> TrialRecord:
    points = [
        LoadPointRecord(load="c1", per_block={"tok": [speed, 2 * speed]}),
        LoadPointRecord(load="c8", per_block={"tok": [9.0]}),
    ]
    return TrialRecord(number=number, state=state, load_points=points)


def test_what_starts_no_server_takes_no_place() -> None:
    records = [trial(number, state) for number, state in enumerate(STATES)]
    assert launch_places(records) == {0: 0, 2: 1, 4: 2, 5: 3, 6: 4}
    assert [record.is_launch for record in records] == [True, False, True, False, *[True] * 3]


def test_sentinels_stand_at_launches_not_at_numbers() -> None:
    speeds = [100.0, 1.0, 1.0, 1.0, 102.0, 1.0, 104.0]
    records = [trial(n, s, v) for n, (s, v) in enumerate(zip(STATES, speeds, strict=True))]
    found = sentinels_of(records, "tok", "c1")
    assert found.positions == (0, 2, 4)
    assert found.levels == pytest.approx((-0.0198, 0.0, 0.0194), abs=1e-4)
    assert sentinels_of(records, "tok", "c1", newest=2).positions == (2, 4)
    assert sentinels_of(records, "tok", "c1", newest=0).positions == ()
    assert sentinels_of(records, "ttft_ms", "c1").levels == ()


def test_a_trial_at_a_load_point() -> None:
    record = trial(1, "complete")
    assert record.series("tok", "c1") == record.series("tok", "") == [100.0, 200.0]
    assert record.series("tok", "c8") == [9.0]
    assert record.series("tok", "c99") == record.series("ttft_ms", "c1") == []
    assert record.at("c99") is None
