"""How much a machine varies, and what follows from it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.measure.noise import (
    Drift,
    LaunchNoise,
    drift,
    launch_levels,
    launch_noise,
    pair_margin,
    pooled_noise,
    rounds_needed,
    smallest_detectable_gain,
    spread,
)
from tuner.measure.statistics import gain_intervals


def launches(effects: list[float]) -> list[list[float]]:
    return [[100 * math.exp(e), 50 * math.exp(e), 200 * math.exp(e)] for e in effects]


def test_levels_are_relative_to_the_usual_block() -> None:
    assert launch_levels(launches([0.0, 0.1, -0.1])) == pytest.approx([0.0, 0.1, -0.1])
    assert launch_levels([]) == []


def test_noise_is_the_spread_of_levels() -> None:
    noise = launch_noise(launches([0.0, 0.1, -0.1]))
    assert (noise.sd, noise.df) == (pytest.approx(0.1), 2)
    assert noise.margin() == pytest.approx(0.2)
    assert noise.upper_sd == pytest.approx(0.15)


def test_one_launch_says_nothing() -> None:
    noise = launch_noise(launches([0.0]))
    assert noise.df == 0
    assert math.isnan(noise.sd)
    assert noise.margin() == 0.02


def test_drift_of_half_a_percent_per_launch_is_found() -> None:
    places = [0.0, 8.0, 16.0, 24.0, 32.0]
    draw = np.random.default_rng(1)
    levels = [-0.005 * place + draw.normal(0, 0.005) for place in places]
    found = drift(places, levels)
    assert found.is_significant
    assert found.slope == pytest.approx(-0.005, abs=0.0006)


def test_noise_without_drift_is_seldom_taken_for_drift() -> None:
    draw = np.random.default_rng(2)
    hits = sum(
        drift(range(5), draw.normal(0, 0.05, 5).tolist()).is_significant for _ in range(500)
    )
    assert 10 <= hits <= 40, "one in twenty"
    assert not Drift(0.1, math.nan, 0, 1).is_significant


def test_drift_taken_out_of_the_noise() -> None:
    trend = drift(range(6), [0.05 * n for n in range(6)])
    assert trend.is_significant
    places, levels = range(6), [0.05 * n for n in range(6)]
    found = spread(places, levels, trend)
    assert (found.sd, found.df) == (pytest.approx(0.0, abs=1e-9), 4)
    assert spread(places, levels).sd == pytest.approx(0.05 * math.sqrt(3.5))
    assert trend.change == pytest.approx(math.expm1(0.25))


def test_one_bad_launch_is_no_drift() -> None:
    assert abs(drift(range(7), [0, 0, 0, 0, 0, 0, -0.5]).slope) < 1e-12


def test_drift_needs_two_places() -> None:
    assert drift([1.0], [0.0]) == drift([2.0, 2.0], [0.0, 1.0])
    assert not drift([1.0], [0.0]).is_significant


def test_smallest_gain_is_found_as_often_as_it_says() -> None:
    sd, rounds = 0.02, 4
    gain = smallest_detectable_gain(sd, rounds, finalists=3)
    draw = np.random.default_rng(7)

    def launch(factor: float) -> list[float]:
        return [factor * math.exp(draw.normal(0, sd))]

    found = 0
    for _ in range(150):
        base = [launch(1.0) for _ in range(rounds)]
        servers = [[launch(g) for _ in range(rounds)] for g in (gain, 1.0, 1.0)]
        found += gain_intervals(servers, base, level=1 - 0.05 / 3)[0].is_gain
    assert 0.68 <= found / 150 <= 0.9


def test_more_noise_needs_more_rounds() -> None:
    assert rounds_needed(0.01, 0.03) < rounds_needed(0.03, 0.03) < rounds_needed(0.06, 0.03)
    assert rounds_needed(0.02, 0.03, finalists=3) <= rounds_needed(0.02, 0.03) + 1
    assert rounds_needed(math.nan, 0.03) == rounds_needed(0.5, 0.001) == 64


def test_without_rounds_or_noise() -> None:
    assert smallest_detectable_gain(0.02, 1) == math.inf
    assert smallest_detectable_gain(math.nan, 4) == math.inf


def test_two_equal_launches_are_hardly_ever_a_margin_apart() -> None:
    draw = np.random.default_rng(4)
    for sd in (0.005, 0.025, 0.05):
        apart = 0
        for _ in range(2000):
            seen = LaunchNoise(float(np.std(draw.normal(0, sd, 3), ddof=1)), 2)
            one, other = draw.normal(0, sd, 2)
            apart += bool(one - other < -pair_margin(seen))
        assert apart / 2000 < (0.01 if sd < 0.03 else 0.03)


def test_a_margin_shrinks_with_what_repeats_show_and_never_below_the_least() -> None:
    unknown, quiet = pair_margin(LaunchNoise(math.nan, 0)), pair_margin(LaunchNoise(0.005, 20))
    assert quiet < 0.06 < unknown < 0.2
    assert pair_margin(LaunchNoise(0.1, 3)) > 0.2
    assert pair_margin(LaunchNoise(1e-5, 100000), 0.01) == 0.01


def test_noises_are_pooled_by_what_they_rest_on() -> None:
    both = pooled_noise(LaunchNoise(0.03, 1), LaunchNoise(0.01, 3), LaunchNoise(math.nan, 0))
    assert both.df == 4
    assert both.sd == pytest.approx(math.sqrt((0.0009 + 3 * 0.0001) / 4))
    assert pooled_noise(LaunchNoise(math.nan, 0)).df == 0
