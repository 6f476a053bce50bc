"""Numbers as text and back."""

from __future__ import annotations

import math

import pytest

from tuner import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2m 31s", 151), ("250ms", 0.25), ("1d", 86400)],
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "s", "3 parsecs", "1h 30", "-5s", "1:30", "٣s"])
def test_parse_duration_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration such as 90s, 30m or 1h30m, got"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.0852, "85ms"),
        (0.9996, "1.0s"),
        (4.21, "4.2s"),
        (9.96, "10s"),
        (59.6, "1m 00s"),
        (151, "2m 31s"),
        (3599.7, "1h 00m"),
        (3900, "1h 05m"),
        (90061, "25h 01m"),
        (math.nan, "-"),
        (-1, "-"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(("text", "seconds"), [("3:41", 221), ("1:02:05", 3725), ("90:00", 5400)])
def test_parse_clock(text: str, seconds: float) -> None:
    assert units.parse_clock(text) == seconds


@pytest.mark.parametrize("text", ["3", "3:61", "1:75:00", "a:bc", ""])
def test_parse_clock_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="must be minutes:seconds"):
        units.parse_clock(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0412, "0.0412"), (0.000567, "0.000567"), (-0.0001, "-0.000100"), (1e9, "1,000,000,000")],
)
def test_small_and_large_numbers(value: float, text: str) -> None:
    assert units.number(value) == text


def test_numbers_that_are_not_finite_are_a_dash() -> None:
    for value in (math.nan, math.inf, -math.inf):
        assert units.number(value) == "-"
        assert units.clock(value) == "-"
        assert units.ratio(value) == "-"
        assert units.percent(value) == "-"
        assert units.size(value) == "-"
        assert units.plus_minus(value, 1.0) == "-"
    assert units.plus_minus(5.0, math.nan) == "5.00"
    assert units.interval(math.nan, 1.5) == "[-, 1.50]"


def test_no_minus_before_zero() -> None:
    assert units.number(-1e-12) == "0.000000"


@pytest.mark.parametrize(
    ("text", "found"),
    [("1,912 ± 14", (1912.0, 14.0)), ("88.8", (88.8, 0.0)), ("-2 ±  1", (-2, 1))],
)
def test_parse_plus_minus(text: str, found: tuple[float, float]) -> None:
    assert units.parse_plus_minus(text) == found


@pytest.mark.parametrize("text", ["", "1,91", "abc", "± 3", "1 ±", "1e3"])
def test_parse_plus_minus_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number such as"):
        units.parse_plus_minus(text)


def test_parse_ratio() -> None:
    assert units.parse_ratio("1.39x") == 1.39
    with pytest.raises(ValueError, match="must be a ratio such as"):
        units.parse_ratio("1.39")


@pytest.mark.parametrize(
    ("share", "text"), [(0.873, "87 %"), (0.0, "0 %"), (0.0025, "0.25 %"), (-0.27, "-27 %")]
)
def test_percent(share: float, text: str) -> None:
    assert units.percent(share) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1023.7, "1 KiB"),
        (16 * 2**20, "16 MiB"),
        (1.5 * 2**30, "1.5 GiB"),
        (3 * 2**50, "3,072 TiB"),
    ],
)
def test_size(count: float, text: str) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("text", "count"), [("16 MiB", 2**24), ("1.5GiB", 3 * 2**29), ("4096", 4096), ("2k", 2048)]
)
def test_parse_size(text: str, count: int) -> None:
    assert units.parse_size(text) == count


def test_parse_size_refuses() -> None:
    with pytest.raises(ValueError, match="must be a size such as 16 MiB"):
        units.parse_size("16 miles")
