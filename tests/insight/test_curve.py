"""Acceptance per position: intervals and what follows at other depths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.insight.curve import Curve, curve_of, quantiles, wilson
from tuner.store.record import AcceptanceRecord


@given(st.floats(0, 1), st.integers(1, 100_000))
@settings(max_examples=60)
def test_an_interval_holds_its_share(share: float, count: int) -> None:
    low, high = wilson(share, count)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1


def test_wilson_is_the_textbook_one() -> None:
    low, high = wilson(0.5, 100)
    assert low == pytest.approx(0.4038, abs=1e-4)
    assert high == pytest.approx(0.5962, abs=1e-4)
    assert wilson(0.5, 0) == (0.0, 1.0)


def test_a_curve_from_a_record() -> None:
    record = AcceptanceRecord(
        length=2.26, per_position=[0.7, 0.35, 0.21], steps=1000, by_category={"code": 2.8}
    )
    curve = curve_of(record, 2.26)
    assert curve is not None
    assert curve.rates(5) == pytest.approx([0.7, 0.5, 0.6, 0.6, 0.6])
    assert curve.mean_length(3) == pytest.approx(2.26)
    assert curve.mean_length(4) == pytest.approx(2.26 + 0.21 * 0.6)
    assert curve.to_json()["by_category"] == {"code": 2.8}


def test_a_length_without_positions_is_the_same_rate_everywhere() -> None:
    curve = curve_of(None, 1.75)
    assert curve is not None
    assert curve.rates(2) == pytest.approx([0.5, 0.5], abs=1e-6)
    assert curve_of(None, None) is None


def test_positions_beyond_what_was_measured_are_less_certain() -> None:
    curve = curve_of(AcceptanceRecord(length=2.26, per_position=[0.7, 0.49], steps=4000), 2.19)
    assert curve is not None
    widths = [np.ptp(quantiles(curve.lengths(depth, 800))) for depth in (2, 4)]
    assert widths[0] < 0.08 < widths[1]


def test_more_alternatives_accept_more() -> None:
    curve = Curve(2.0)
    assert curve.mean_length(3, lift=0.5) > curve.mean_length(3) == pytest.approx(2.0)
    assert math.isclose(float(np.median(curve.lengths(3, 800))), 2.0, rel_tol=0.03)


def test_positions_that_another_server_measured_go_on() -> None:
    own = curve_of(AcceptanceRecord(length=1.8, per_position=[0.8], steps=100), 1.8)
    deeper = curve_of(AcceptanceRecord(length=1.9, per_position=[0.6, 0.3, 0.03], steps=100), 1.93)
    assert own is not None
    assert deeper is not None
    assert own.extended_by(deeper).rates(4) == pytest.approx([0.8, 0.5, 0.1, 0.1])
    assert deeper.extended_by(own) is deeper
