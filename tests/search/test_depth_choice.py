"""Which depth is best at a load: families, ties, and the smaller depth."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tuner.config.engine import FakeConfig
from tuner.engines.catalog import get_engine
from tuner.search.depth_choice import (
    confirmed_choice,
    family_of,
    searched_gains,
    worth_confirming,
)
from tuner.search.history import History
from tuner.search.objective import Objective
from tuner.store.record import ArgsRecord, LoadPointRecord, TrialRecord

METRIC = "output_tokens_per_s"


def chain(number: int, steps: int, c1: float = 100.0, c8: float = 100.0, **args: Any) -> Any:
    engine = get_engine(FakeConfig(kind="fake", args={"spec-steps": steps, **args}))
    points = [
        LoadPointRecord(load=load, per_block={METRIC: [value, value * 2]}, requests=4)
        for load, value in (("c1", c1), ("c8", c8))
    ]
    return TrialRecord(
        number=number, state="complete" if steps else "baseline", value=c1, vs_baseline=c1 / 100,
        requested_args=ArgsRecord(**engine.fixed_args().to_json()), load_points=points,
    )  # fmt: skip


ENGINE = get_engine(FakeConfig(kind="fake"))


def test_a_family_differs_in_depth_alone() -> None:
    records = [
        chain(0, 0), chain(1, 2, 120.0), chain(2, 5, 130.0), chain(3, 3, 900.0, threads=2),
        chain(4, 4, **{"spec-topk": 2, "spec-draft-tokens": 8}),
        chain(5, 6).model_copy(update={"state": "pruned"}),
    ]  # fmt: skip
    assert {d: r.number for d, r in family_of(ENGINE, records, records[1]).items()} == {2: 1, 5: 2}
    assert list(family_of(ENGINE, records, None)) == [3]
    assert family_of(ENGINE, records[:1], None) == {}


def test_the_search_tells_the_gain_of_each_depth_at_a_load(objective: Objective) -> None:
    records = [chain(0, 0), chain(1, 2, 149.0, 70.0), chain(2, 5, 150.0, 60.0)]
    history = History(objective)
    for record in records:
        history.add(record)
    family = family_of(ENGINE, records, None)
    found = searched_gains(objective, history, family, "c8")
    assert {depth: round(math.exp(gain), 3) for depth, gain in found.items()} == {
        0: 1.0, 2: 0.7, 5: 0.6,
    }  # fmt: skip
    assert searched_gains(objective, history, family, "c99")[2] == -math.inf


@pytest.mark.parametrize(
    ("c1", "c8", "depths"),
    [
        ({0: 1.0, 2: 1.3, 5: 1.6}, {0: 1.0, 2: 0.95, 5: 0.6}, [0, 2, 5]),
        ({0: 1.0, 2: 1.499, 5: 1.5}, {0: 1.0, 2: 0.7, 5: 0.5}, [0, 2]),
        ({0: 1.0, 2: 1.005}, {0: 1.0, 2: 0.9}, [0]),
        ({0: 1.0, 2: 1.3}, {0: 1.0, 2: 1.2}, [0, 2]),
    ],
)
def test_ties_go_to_the_smaller_and_the_best_single_depth_is_there(
    c1: dict[int, float], c8: dict[int, float], depths: list[int]
) -> None:
    logs = [{depth: math.log(ratio) for depth, ratio in load.items()} for load in (c1, c8)]
    assert worth_confirming(logs, 0.02) == depths


@pytest.mark.parametrize(
    ("speeds", "depth"),
    [
        ({0: 100.0, 2: 130.0, 5: 150.0}, 5),
        ({0: 100.0, 2: 150.0, 5: 150.2}, 2),
        ({0: 100.0, 2: 100.1, 5: 80.0}, 0),
        ({0: 100.0, 5: 60.0}, 0),
    ],
)
def test_the_confirmed_depth(speeds: dict[int, float], depth: int) -> None:
    jitter = (1.0, 1.004, 0.997, 1.001)
    servers = {
        each: [[speed * j, 2 * speed * j] for j in (jitter[each % 4 :] + jitter[: each % 4])]
        for each, speed in speeds.items()
    }
    choice = confirmed_choice(servers, "maximize")
    assert choice.depth == depth
    if depth:
        assert choice.gain.ratio == pytest.approx(speeds[depth] / 100, rel=0.02)
        assert choice.gain.is_gain
    else:
        assert not choice.gain.is_gain
