"""Owns numbers as text, both ways: durations, rates, ratios, sizes, ± intervals.

Writers never raise: a number that is not finite is written `-`. Readers raise ValueError that
says what the text must be.
"""

from __future__ import annotations

import math
import re

MISSING = "-"
"""How an absent number is written."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(?:\d+(?:\.\d+)?(?:ms|s|m|h|d)\s*)+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):([0-5]\d)", re.ASCII)
_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?", re.ASCII)
_SIZE = re.compile(r"(\d+(?:,\d{3})*(?:\.\d+)?)\s*([KMGT]?)(?:iB|B)?", re.ASCII | re.IGNORECASE)
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def parse_duration(text: str) -> float:
    """Seconds of a text such as `90s`, `30m`, `1h30m`; raises ValueError for anything else."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"must be a duration such as 90s, 30m or 1h30m, got {text!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def duration(seconds: float) -> str:
    """`85ms`, `4.2s`, `2m 31s`, `1h 05m`: two units at most; `parse_duration` reads it back."""
    if not math.isfinite(seconds) or seconds < 0:
        return MISSING
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    minutes = round(seconds / 60)
    return f"{minutes // 60}h {minutes % 60:02d}m"


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any: `3:41`, `1:02:05`."""
    if not math.isfinite(seconds):
        return MISSING
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    tail = f"{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
    return f"{hours}:{tail}" if hours else tail


def parse_clock(text: str) -> float:
    """Seconds of `3:41` or `1:02:05`; raises ValueError for anything else."""
    match = _CLOCK.fullmatch(text.strip())
    if not match or (match[1] and int(match[2]) > 59):
        raise ValueError(f"must be minutes:seconds such as 3:41 or 1:02:05, got {text!r}")
    return int(match[1] or 0) * 3600.0 + int(match[2]) * 60.0 + int(match[3])


def number(value: float) -> str:
    """Three significant digits, never fewer than the whole part: `1,912`, `61.2`, `0.0412`."""
    return _fixed(value, _decimals(value))


def parse_number(text: str) -> float:
    """A number with thousands separators, `1,912.5`; raises ValueError for anything else."""
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError(f"must be a number such as 1,912 or 0.5, got {text!r}")
    return float(text.strip().replace(",", ""))


def plus_minus(value: float, half_width: float | None) -> str:
    """A value with its half-width in the same decimals: `1,912 ±  14`."""
    if half_width is None or not math.isfinite(half_width) or not math.isfinite(value):
        return number(value)
    return f"{number(value)} ± {_fixed(half_width, _decimals(value)):>3}"


def parse_plus_minus(text: str) -> tuple[float, float]:
    """Value and half-width of `1,912 ± 14`, 0 where none is given; raises ValueError."""
    value, sign, half_width = text.partition("±")
    return parse_number(value), parse_number(half_width) if sign else 0.0


def ratio(value: float) -> str:
    """A ratio to the baseline: `1.35x`."""
    return f"{value:.2f}x" if math.isfinite(value) else MISSING


def parse_ratio(text: str) -> float:
    """The number of `1.35x`; raises ValueError for anything else."""
    if not text.strip().endswith("x"):
        raise ValueError(f"must be a ratio such as 1.35x, got {text!r}")
    return parse_number(text.strip().removesuffix("x"))


def interval(low: float, high: float) -> str:
    """Both ends of an interval of ratios: `[1.36, 1.40]`."""
    ends = [f"{end:.2f}" if math.isfinite(end) else MISSING for end in (low, high)]
    return f"[{ends[0]}, {ends[1]}]"


def percent(share: float) -> str:
    """A share of 1 in percent: `87 %`, below one percent two digits: `0.25 %`."""
    if not math.isfinite(share):
        return MISSING
    value = share * 100
    return f"{value:.0f} %" if abs(value) >= 1 or value == 0 else f"{value:.2g} %"


def size(count: float) -> str:
    """Bytes in binary units, three significant digits: `16 MiB`, `1.5 GiB`, `512 B`."""
    if not math.isfinite(count):
        return MISSING
    value, step = float(count), 0
    while abs(value) >= 1023.5 and step < len(_SIZE_UNITS) - 1:
        value, step = value / 1024, step + 1
    digits = number(value)
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{digits} {_SIZE_UNITS[step]}"


def parse_size(text: str) -> int:
    """Bytes of `16 MiB`, `1.5GiB`, `4096`; K, M, G and T are binary; raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"must be a size such as 16 MiB or 4096, got {text!r}")
    step: int = "_KMGT".index(match[2].upper() or "_")
    return round(parse_number(match[1]) * 2.0 ** (10 * step))


def _decimals(value: float) -> int:
    magnitude = abs(value)
    if magnitude >= 99.95 or magnitude == 0 or not math.isfinite(value):
        return 0
    if magnitude >= 0.9995:
        return 1 if magnitude >= 9.995 else 2
    return min(6, 2 - math.floor(math.log10(float(f"{magnitude:.2e}"))))


def _fixed(value: float, decimals: int) -> str:
    if not math.isfinite(value):
        return MISSING
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text
