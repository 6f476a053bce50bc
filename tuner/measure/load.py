"""Owns when requests are sent: slots of a closed loop, arrival times of an open loop."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tuner.errors import UsageError
from tuner.measure.records import LoadPoint

_TRACE_KEYS = ("timestamp", "arrival", "arrived_at", "time", "t")


def stable_seed(*parts: object) -> int:
    """A seed that depends on the parts alone, the same in every process and version."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def arrivals(
    load: LoadPoint, count: int, *, seed: int, first: int = 0, trace: Sequence[float] = ()
) -> tuple[float, ...] | None:
    """Seconds after the block's start at which each request is due; None for a closed loop.

    Poisson gaps are drawn from `seed` alone, so every server sees the same arrivals. A trace is
    replayed from its arrival number `first` on, so that consecutive blocks continue it.
    """
    if load.trace is not None:
        return _replay(trace, count, first)
    if load.rate is None:
        return None
    if load.arrivals == "constant":
        return tuple(index / load.rate for index in range(count))
    draw = random.Random(seed)
    times = [0.0]
    for _ in range(count - 1):
        times.append(times[-1] + draw.expovariate(load.rate))
    return tuple(times[:count])


def peak(load: LoadPoint, count: int) -> int:
    """Requests that a closed loop holds in flight at most; 1 for open loops."""
    return min(load.concurrency or 1, count)


def read_trace(path: str) -> tuple[float, ...]:
    """Arrival times of a trace file, ascending from 0.

    One time in seconds per line, as a number or as JSON with `timestamp`. Raises UsageError.
    """
    file = Path(path)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: must be a readable trace file, got {error}.",
            "Write one arrival time in seconds per line.",
        ) from None
    times = [_time(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if len(times) < 2:
        raise UsageError(
            f"{path}: must hold at least two arrival times, got {len(times)}.",
            "Write one arrival time in seconds per line.",
        )
    first = min(times)
    return tuple(sorted(time - first for time in times))


def _time(path: str, number: int, line: str) -> float:
    try:
        value = json.loads(line)
        if isinstance(value, dict):
            value = next(value[key] for key in _TRACE_KEYS if key in value)
        time = float(value)
    except (ValueError, TypeError, StopIteration):
        time = math.nan
    if not math.isfinite(time):
        raise UsageError(
            f"{path}:{number}: must be an arrival time in seconds, got {line.strip()[:60]!r}.",
            'Write a number, or JSON such as {"timestamp": 12.5}.',
        )
    return time


def _replay(trace: Sequence[float], count: int, first: int) -> tuple[float, ...]:
    """`count` consecutive arrivals of the trace, going round at its end."""
    gaps = [after - before for before, after in pairwise(trace)]
    if not gaps:
        return (0.0,) * count
    times = [0.0]
    for step in range(count - 1):
        times.append(times[-1] + gaps[(first + step) % len(gaps)])
    return tuple(times)
