"""Owns numbers as text: durations, rates, intervals at three significant digits."""

from __future__ import annotations

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(?:\d+(?:\.\d+)?(?:ms|s|m|h|d)\s*)+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds of a text such as `90s`, `30m`, `1h30m`; raises ValueError for anything else."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"must be a duration such as 90s, 30m or 1h30m, got {text!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def number(value: float) -> str:
    """Three significant digits, never fewer than the whole part: `1,912`, `61.2`, `0.412`."""
    return f"{value:,.{_decimals(value)}f}"


def plus_minus(value: float, half_width: float | None) -> str:
    """A value with its half-width in the same decimals: `1,912 ±  14`."""
    if half_width is None:
        return number(value)
    return f"{number(value)} ± {half_width:>3,.{_decimals(value)}f}"


def ratio(value: float) -> str:
    """A ratio to the baseline: `1.35x`."""
    return f"{value:.2f}x"


def interval(low: float, high: float) -> str:
    """Both ends of an interval of ratios: `[1.36, 1.40]`."""
    return f"[{low:.2f}, {high:.2f}]"


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any: `3:41`, `1:02:05`."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    tail = f"{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
    return f"{hours}:{tail}" if hours else tail


def _decimals(value: float) -> int:
    size = abs(value)
    if size >= 99.95 or size == 0:
        return 0
    return 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
