"""A load that moves: its order, its series, and gains at one load that are no outliers."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.measure.records import LoadPoint
from tuner.search.sweep import at_load, first_answers, geometric_mean, sweep_of, swept_gain
from tuner.store.record import ConfirmationLaunch

C1, C4, C16 = (LoadPoint(concurrency=n) for n in (1, 4, 16))


def test_the_load_goes_up_and_down_again() -> None:
    assert sweep_of([C16, C1, LoadPoint(rate=2.0), C4]) == (C1, C4, C16, C4, C1)
    assert sweep_of([C4]) == (C4,)


def swept(round_: int, trial: int, c1: float, c16: float) -> ConfirmationLaunch:
    return ConfirmationLaunch(
        round=round_, order=0, trial=trial, digest="d", value=None,
        loads=["c1", "c1", "c16", "c16", "c1", "c1"],
        per_block=[c1, c1 * 1.1, c16, c16 * 1.1, c1, c1 * 1.1],
    )  # fmt: skip


def test_a_gain_at_one_load_counts_in_full() -> None:
    noise = (1.0, 1.003, 0.998)
    single = [swept(r, 1, 100 * n, 400 * n) for r, n in enumerate(noise)]
    table = [swept(r, -1, 100 * n, 900 * n) for r, n in enumerate(reversed(noise))]
    found = swept_gain(table, single, "maximize")
    assert found.ratio == pytest.approx(1.5, rel=0.01)
    assert found.is_gain
    assert found.replicates == 3
    assert swept_gain(table, single, "minimize").ratio == pytest.approx(1 / 1.5, rel=0.01)
    assert not swept_gain(single, single, "maximize").is_gain


def test_series_by_load() -> None:
    launch = swept(0, 1, 100.0, 400.0)
    assert at_load(launch, "c16") == pytest.approx([400.0, 440.0])
    assert at_load(launch, "c2") == []
    assert geometric_mean([100.0, 400.0, 0.0]) == pytest.approx(200.0)
    assert geometric_mean([0.0]) is None


def test_only_the_first_pass_is_compared(bench: Any) -> None:
    blocks = [
        _block(index, load, f"{load.label}-{index}") for load in (C1, C4) for index in (0, 1)
    ]
    assert [record.text for record in first_answers(blocks)] == ["c1-0", "c1-1"]


def _block(index: int, load: LoadPoint, text: str) -> Any:
    from tuner.measure.records import Block, RequestRecord

    record = RequestRecord("p", "", 0, 0, 0, 1, 1, (), 1, 1, 0, "stop", text=text)
    return Block(index, load, 0.0, 1.0, (record,))
