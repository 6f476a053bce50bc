"""Numbers as the screens write them."""

from __future__ import annotations

import pytest

from tuner import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1912.4, "1,912"),
        (130.6, "131"),
        (99.96, "100"),
        (61.24, "61.2"),
        (9.996, "10.0"),
        (5.321, "5.32"),
        (0.41234, "0.412"),
        (0.0, "0"),
        (-2.5, "-2.50"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert units.number(value) == text


def test_plus_minus_shares_the_decimals() -> None:
    assert units.plus_minus(1912.4, 14.2) == "1,912 ±  14"
    assert units.plus_minus(5.321, 0.04) == "5.32 ± 0.04"
    assert units.plus_minus(5.321, None) == "5.32"


def test_ratio_and_interval() -> None:
    assert units.ratio(1.384) == "1.38x"
    assert units.interval(1.357, 1.402) == "[1.36, 1.40]"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (221, "3:41"), (3725, "1:02:05"), (59.6, "1:00")]
)
def test_clock(seconds: float, text: str) -> None:
    assert units.clock(seconds) == text
