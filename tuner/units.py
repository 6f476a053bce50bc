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
