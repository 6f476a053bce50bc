"""Intervals, pairings and bounds: known values, symmetries, and promises kept by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.statistics import (
    Interval,
    family_level,
    gain_interval,
    gain_intervals,
    log_ratios,
    mean_interval,
    paired_bound,
    paired_gain,
    robust_center,
)

speeds = st.floats(0.1, 1e6)


def test_log_ratios_are_better_above_zero() -> None:
    assert log_ratios([2.0, 1.0], [1.0, 2.0]) == pytest.approx((math.log(2), -math.log(2)))
    assert log_ratios([2.0], [1.0], "minimize") == pytest.approx((-math.log(2),))


def test_pairs_without_values_are_left_out() -> None:
    values = [math.nan, 0.0, -1.0, math.inf, 2.0, 9.0]
    assert log_ratios(values, [1.0, 1.0, 1.0, 1.0, 1.0]) == pytest.approx((math.log(2),))


@given(st.lists(st.tuples(speeds, speeds), min_size=1, max_size=9))
def test_swapping_servers_swaps_the_sign(pairs: list[tuple[float, float]]) -> None:
    a, b = [p[0] for p in pairs], [p[1] for p in pairs]
    assert log_ratios(a, b) == pytest.approx([-x for x in log_ratios(b, a)])
    assert log_ratios(a, b, "minimize") == pytest.approx(log_ratios(b, a))
    assert paired_gain(a, b) * paired_gain(b, a) == pytest.approx(1.0)


def test_mean_interval_of_known_values() -> None:
    mean, low, high = mean_interval([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5
    half = 3.1824463053 * math.sqrt(5 / 3) / 2
    assert (low, high) == pytest.approx((2.5 - half, 2.5 + half))


def test_mean_interval_needs_two_values() -> None:
    assert mean_interval([3.0]) == (3.0, -math.inf, math.inf)
    assert math.isnan(mean_interval([])[0])


def test_robust_center() -> None:
    assert robust_center([1.0, 2.0, 3.0]) == 2.0
    assert robust_center([1.0, 1.0, 1.0, 1.0, 100.0]) == 1.0
    assert math.isnan(robust_center([]))


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12), st.floats(-5, 5))
def test_robust_center_moves_with_the_values(values: list[float], shift: float) -> None:
    center = robust_center(values)
    assert min(values) <= center <= max(values)
    assert robust_center([v + shift for v in values]) == pytest.approx(center + shift, abs=1e-9)


# ---- gains --------------------------------------------------------------------------------------
A = [[100.0, 80.0, 120.0], [101.0, 81.0, 121.0], [99.0, 79.0, 119.0], [100.0, 80.0, 120.0]]


def scaled(launches: list[list[float]], factor: float) -> list[list[float]]:
    return [[value * factor for value in launch] for launch in launches]


def test_an_exact_gain_has_no_width() -> None:
    interval = gain_interval(scaled(A, 1.25), A)
    assert (interval.ratio, interval.low, interval.high) == pytest.approx((1.25, 1.25, 1.25))
    assert interval.replicates == 4
    assert interval.is_gain
    assert not interval.is_loss


def test_a_minimised_metric_gains_by_falling() -> None:
    assert gain_interval(scaled(A, 0.5), A, direction="minimize").ratio == pytest.approx(2.0)


def test_one_round_tells_nothing() -> None:
    interval = gain_interval(A[:1], A[:1])
    assert (interval.ratio, interval.low, interval.high) == (1.0, 0.0, math.inf)
    assert interval.half_width == math.inf


def test_no_values_give_no_ratio() -> None:
    interval = gain_interval([[math.nan]], [[1.0]])
    assert math.isnan(interval.ratio)
    assert not interval.is_gain


def test_rounds_with_a_failed_launch_do_not_count() -> None:
    broken = [*scaled(A, 1.1)[:3], [math.nan] * 3]
    assert gain_interval(broken, A).replicates == 3
    assert gain_interval(broken, A).ratio == pytest.approx(1.1)


def test_a_server_that_failed_takes_nothing_from_the_others() -> None:
    broken = [*scaled(A, 1.1)[:2], []]
    good, partial, gone = gain_intervals([scaled(A, 1.2), broken, []], A)
    assert (good.replicates, partial.replicates, gone.replicates) == (4, 2, 0)
    assert good.ratio == pytest.approx(1.2)
    assert partial.ratio == pytest.approx(1.1, rel=1e-3)
    assert not gone.is_gain


def test_a_disturbed_block_does_not_decide() -> None:
    base = [[*launch, *launch] for launch in A]
    disturbed = scaled(base, 1.1)
    disturbed[1][2] *= 0.3
    assert gain_interval(disturbed, base).ratio == pytest.approx(1.1, rel=0.01)


def test_blocks_on_which_a_server_is_better_are_no_noise() -> None:
    """A server twice as fast on one kind of prompts and slower on another, exactly repeated."""
    ours = [[200.0, 72.0, 120.0]] * 4
    interval = gain_interval(ours, [[100.0, 80.0, 120.0]] * 4)
    assert interval.ratio == pytest.approx((2 * 0.9 * 1.0) ** (1 / 3))
    assert interval.half_width == pytest.approx(0.0, abs=1e-12)


def test_known_noise_widens_and_narrows() -> None:
    ours = [[110.0], [104.0], [107.0]]
    base = [[100.0], [101.0], [99.0]]
    plain = gain_interval(ours, base)
    assert gain_interval(ours, base, noise=(0.02, 50)).half_width < plain.half_width
    assert gain_interval(ours, base, noise=(0.5, 50)).half_width > plain.half_width
    assert gain_interval(ours[:1], base[:1], noise=(0.02, 4)).high < 1.2


def simulate(
    draw: np.random.Generator, gains: list[float], rounds: int, sd: float = 0.02
) -> list[list[list[float]]]:
    easy = np.array([0.2, 0.0, -0.2, 0.1, -0.1, 0.3])
    return [
        [list(np.exp(math.log(g) + draw.normal(0, sd) + easy + draw.normal(0, 0.03, 6)))
         for _ in range(rounds)]
        for g in gains
    ]  # fmt: skip


def test_intervals_cover_and_false_gains_are_rare() -> None:
    draw = np.random.default_rng(3)
    covered, used, studies = 0, 0, 150
    for _ in range(studies):
        base, *finalists = simulate(draw, [1.0, 1.05, 1.0, 0.95], 4)
        intervals = gain_intervals(finalists, base)
        covered += sum(
            i.low <= g <= i.high for i, g in zip(intervals, (1.05, 1.0, 0.95), strict=True)
        )
        base, *finalists = simulate(draw, [1.0, 1.0, 1.0, 1.0], 4)
        strict = gain_intervals(finalists, base, level=family_level(0.95, 3))
        used += any(interval.is_gain for interval in strict)
    assert 0.92 <= covered / studies / 3 <= 0.98
    assert used / studies <= 0.05


def test_a_variable_finalist_is_judged_by_its_own_rounds() -> None:
    draw = np.random.default_rng(4)
    base, calm, _ = simulate(draw, [1.0, 1.0, 1.0], 8, sd=0.005)
    wild = simulate(draw, [1.0], 8, sd=0.3)[0]
    calm_interval, wild_interval = gain_intervals([calm, wild], base)
    alone = gain_interval(wild, base)
    assert wild_interval.half_width == pytest.approx(alone.half_width, rel=0.05)
    assert calm_interval.half_width < wild_interval.half_width


def test_family_level() -> None:
    assert family_level(0.95, 1) == pytest.approx(0.95)
    assert family_level(0.95, 5) == pytest.approx(0.99)
    assert family_level(0.95, 0) == pytest.approx(0.95)


def test_interval_sides() -> None:
    assert Interval(0.9, 0.85, 0.95).is_loss
    assert not Interval(1.0, 0.9, 1.1).is_loss
    assert Interval(1.0, 0.9, 1 / 0.9).half_width == pytest.approx(-math.log(0.9))


# ---- bounds that may be peeked at ---------------------------------------------------------------
def test_bounds_need_three_values() -> None:
    assert paired_bound([]).upper == math.inf
    assert paired_bound([-1.0, -1.0]).upper == math.inf
    assert paired_bound([-1.0] * 3).upper == pytest.approx(math.exp(-1.0))


def test_margin_widens_both_sides() -> None:
    ratios = [-0.2, -0.21, -0.19, -0.2]
    plain, wide = paired_bound(ratios), paired_bound(ratios, margin=0.03)
    assert math.log(wide.upper) - math.log(plain.upper) == pytest.approx(0.03)
    assert math.log(plain.lower) - math.log(wide.lower) == pytest.approx(0.03)
    assert plain.ratio == wide.ratio == pytest.approx(math.exp(-0.2))


def test_a_clear_loss_is_seen_after_a_few_blocks() -> None:
    draw = np.random.default_rng(5)
    ratios = list(draw.normal(math.log(0.8), 0.04, 6))
    seen = [paired_bound(ratios[:n]).upper < 0.98 for n in range(1, 7)]
    assert seen[5]
    assert not seen[1]


def test_looking_after_every_block_keeps_the_risk() -> None:
    """A thousand servers that equal the reference, looked at after each of 20 blocks."""
    draw = np.random.default_rng(6)
    wrong = 0
    for _ in range(1000):
        ratios = draw.normal(0, 0.05, 20)
        wrong += any(paired_bound(ratios[:n], alpha=0.05).upper < 1 for n in range(3, 21))
    assert wrong / 1000 <= 0.06


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=10))
def test_bounds_enclose_the_ratio(ratios: list[float]) -> None:
    bound = paired_bound(ratios)
    assert bound.lower <= bound.ratio * (1 + 1e-12)
    assert bound.ratio <= bound.upper * (1 + 1e-12)
