"""What is written is read back, up to the digits that were written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner import units

POSITIVE = st.floats(1e-3, 1e9)


@given(POSITIVE)
def test_duration(seconds: float) -> None:
    read = units.parse_duration(units.duration(seconds))
    unit = (
        60 if seconds >= 3599.5 else 1 if seconds >= 9.95 else 0.1 if seconds >= 0.9995 else 1e-3
    )
    assert abs(read - seconds) <= unit * 0.501


@given(st.integers(0, 10**7))
def test_clock(seconds: int) -> None:
    assert units.parse_clock(units.clock(seconds)) == seconds


@given(st.floats(-1e12, 1e12).filter(lambda value: abs(value) >= 1e-3))
def test_number_keeps_three_digits(value: float) -> None:
    assert abs(units.parse_number(units.number(value)) - value) <= abs(value) * 0.00501


@given(st.floats(0.01, 1e9), st.floats(0, 1e9))
def test_plus_minus(value: float, half_width: float) -> None:
    read, width = units.parse_plus_minus(units.plus_minus(value, half_width))
    assert abs(read - value) <= value * 0.00501
    assert abs(width - half_width) <= 0.501


@given(st.floats(0, 1e6))
def test_ratio(ratio: float) -> None:
    assert abs(units.parse_ratio(units.ratio(ratio)) - ratio) <= 0.00501


@given(st.integers(0, 2**53))
def test_size(count: int) -> None:
    assert abs(units.parse_size(units.size(count)) - count) <= max(1, count * 0.00501)
