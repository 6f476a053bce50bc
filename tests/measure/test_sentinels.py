"""The baseline launched again and again: drift found and corrected, an unfit host named."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.measure.sentinels import Sentinels, sentinels

PLACES = (0.0, 5.0, 10.0, 15.0, 20.0)


def line(slope: float, noise: float = 0.0, seed: int = 1) -> Sentinels:
    draw = np.random.default_rng(seed)
    levels = [slope * place + (draw.normal(0, noise) if noise else 0.0) for place in PLACES]
    return sentinels(PLACES, [[100 * math.exp(x), 60 * math.exp(x)] for x in levels])


def test_half_a_percent_per_launch_is_corrected_at_every_place() -> None:
    found = line(-0.005, noise=0.003)
    assert found.is_drifting
    for place in (0, 3, 7, 12, 20, 23):
        assert found.shift(place) == pytest.approx(-0.005 * (place - 10), abs=0.008)
    assert found.noise.sd == pytest.approx(0.003, abs=0.002)


def test_without_drift_nothing_is_corrected() -> None:
    found = line(0.0, noise=0.02)
    assert not found.is_drifting
    assert [found.shift(place) for place in (0, 9, 40)] == [0.0, 0.0, 0.0]


def test_false_corrections_are_as_rare_as_stated() -> None:
    hits = sum(line(0.0, 0.02, seed).is_drifting for seed in range(400))
    assert hits <= 36, "5 % of 400, and chance"


@pytest.mark.parametrize("slope", [-0.005, 0.005])
def test_a_true_gain_is_right_on_a_drifting_machine(slope: float) -> None:
    """Six servers of one tenth more, measured between sentinels: their mean ratio is a tenth."""
    draw = np.random.default_rng(4)
    found, gains = line(slope, 0.003), []
    typical = float(np.mean(found.levels))
    for place in (2, 4, 8, 11, 14, 18):
        truth = math.log(1.1) + slope * place - slope * 10 + draw.normal(0, 0.003)
        gains.append(truth - typical - found.shift(place))
    assert np.mean(gains) == pytest.approx(math.log(1.1), abs=0.004)
    assert np.std(gains) < 0.008


def test_an_unfit_host_is_named_with_its_limit() -> None:
    assert line(-0.005, 0.003).trouble() == ""
    assert "must change by less than 25% along a study, got -26% in 20" in line(-0.015).trouble()
    wild = sentinels((0, 3, 6), [[100.0], [150.0], [100.0]])
    assert wild.trouble() == (
        "launches of the baseline must differ by less than 15% (one standard deviation), got 23% "
        "in 3 launches"
    )
    assert sentinels((0, 3), [[100.0], [150.0]]).trouble() == "", "two launches prove nothing"


def test_launches_without_a_value_are_left_out() -> None:
    found = sentinels((0, 4, 8), [[100.0], [0.0], [101.0]])
    assert found.positions == (0, 8)
    assert sentinels((), []).trouble() == ""
    assert sentinels((), []).shift(3) == 0.0
