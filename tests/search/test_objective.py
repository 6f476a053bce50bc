"""What better means: directions, pairing by block, outcome constraints."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.config.study import ObjectiveConfig
from tuner.config.workload import LoadConfig
from tuner.measure.records import LoadPoint
from tuner.search.objective import Objective, build_objective, pooled_reference

C1, C8 = LoadPoint(concurrency=1), LoadPoint(concurrency=8)
speeds = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=8)


def test_a_ratio_above_one_is_better_in_both_directions() -> None:
    faster = Objective("output_tokens_per_s", True, C1)
    quicker = Objective("ttft_ms", False, C1)
    assert faster.ratio([200.0, 100.0], [100.0, 50.0]) == pytest.approx(2.0)
    assert quicker.ratio([50.0, 50.0], [100.0, 100.0]) == pytest.approx(2.0)


def test_ratios_are_paired_by_block_not_pooled() -> None:
    objective = Objective("output_tokens_per_s", True, C1)
    # A slow and a fast block: the mean of speeds would hide the loss in the slow one.
    assert objective.ratio([50.0, 2000.0], [100.0, 1000.0]) == pytest.approx(1.0)


def test_blocks_without_a_value_are_left_out() -> None:
    objective = Objective("output_tokens_per_s", True, C1)
    assert objective.ratio([math.nan, 120.0, 0.0], [100.0, 100.0, 100.0]) == pytest.approx(1.2)
    assert objective.ratio([math.nan], [100.0]) is None


@given(speeds)
def test_a_server_equals_itself(values: list[float]) -> None:
    assert Objective("e2e_ms", False, C1).ratio(values, values) == pytest.approx(1.0)


def test_constraints_are_relative_to_the_baseline_and_unknown_is_violated() -> None:
    config = ObjectiveConfig(
        maximize="output_tokens_per_s",
        at=LoadConfig(concurrency=8),
        constraints=["ttft_p95_ms <= 1.10 * baseline", "error_rate == 0"],
    )
    objective = build_objective(config, [C1, C8])
    assert objective.load == C8
    found = objective.violations(
        {"ttft_p95_ms": 105.0, "error_rate": 0.0}, {"ttft_p95_ms": 100.0, "error_rate": 0.0}
    )
    assert all(value <= 0 for value in found.values())
    found = objective.violations({"ttft_p95_ms": 121.0}, {"ttft_p95_ms": 100.0})
    assert found["ttft_p95_ms <= 1.10 * baseline"] > 0
    assert found["error_rate == 0"] > 0


def test_one_load_point_needs_no_at() -> None:
    objective = build_objective(ObjectiveConfig(minimize="ttft_ms"), [C8])
    assert (objective.load, objective.direction) == (C8, "minimize")
    assert objective.text == "minimize ttft_ms at c8"


def test_a_reference_pools_launches_by_geometric_mean() -> None:
    assert pooled_reference([[100.0, 50.0], [400.0, 50.0, 7.0]]) == pytest.approx((200.0, 50.0))
    assert pooled_reference([]) == ()


@pytest.mark.parametrize(
    ("series", "pooled"),
    [
        ([[0.5, 0.0], [2.0, 8.0]], (1.0, 8.0)),  # a block without a value is the others' alone
        ([[math.nan, 3.0], [5.0, 3.0]], (5.0, 3.0)),
        ([[1.0, 2.0], []], ()),
        ([[-1.0], [4.0]], (4.0,)),
    ],
)
def test_blocks_that_one_launch_lacks(
    series: list[list[float]], pooled: tuple[float, ...]
) -> None:
    assert pooled_reference(series) == pytest.approx(pooled)


def test_a_block_that_no_launch_has_is_unknown() -> None:
    first, second = pooled_reference([[0.0, 3.0], [0.0, 12.0]])
    assert math.isnan(first)
    assert second == pytest.approx(6.0)


@given(st.lists(speeds, min_size=1, max_size=4))
def test_a_pooled_reference_lies_between_its_launches(series: list[list[float]]) -> None:
    for index, value in enumerate(pooled_reference(series)):
        column = [launch[index] for launch in series]
        assert min(column) * (1 - 1e-9) <= value <= max(column) * (1 + 1e-9)
