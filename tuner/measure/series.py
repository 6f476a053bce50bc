"""Owns what happened over time inside a launch: windows of throughput, trends, stalls, two modes.

One mean hides all of these. They are reported as warnings; none of them changes a number.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from tuner.measure.records import Block, RequestRecord

_STALL_S = 0.5
_STALL_FACTOR = 10.0
_STALL_SHARE = 0.1
_TREND = 0.15
_SLOW_START = 1.5
_DECAY = 0.1


def block_warnings(blocks: Sequence[Block]) -> list[str]:
    """What the blocks of one load point, in time order, show that a mean would hide."""
    warnings = [f"block {b.index}: {note}" for b in blocks for note in b.notes]
    for block in blocks:
        warnings += [f"block {block.index}: {text}" for text in _stalls(block)]
    done = [record for block in blocks for record in block.records if record.ok]
    speeds = [speed for record in done if (speed := _speed(record))]
    return warnings + _trend(speeds) + _two_modes(speeds)


def _speed(record: RequestRecord) -> float:
    """Tokens per second of one answer, from sending to its end."""
    seconds = record.end_s - record.sent_s
    return (record.output_tokens or 0) / seconds if seconds > 0 else 0.0


def _stalls(block: Block) -> list[str]:
    """A pause in which no stream moved although an answer was under way.

    Waiting for a first token is no stall: a long prompt takes its time.
    """
    times = np.sort([at for record in block.records for at in record.chunk_s])
    if len(times) < 20:
        return []
    usual = block.wall_s / len(times)
    gaps = np.diff(times)
    long = np.flatnonzero(
        gaps >= max(_STALL_S, _STALL_FACTOR * usual, _STALL_SHARE * block.wall_s)
    )
    for place in long[np.argsort(-gaps[long], kind="stable")]:
        before, after = times[place : place + 2]
        if any(_is_under_way(record, before, after) for record in block.records):
            share = f"{gaps[place] / block.wall_s:.0%} of the block"
            return [f"nothing arrived for {gaps[place]:.2f} s ({share})"]
    return []


def _is_under_way(record: RequestRecord, before: float, after: float) -> bool:
    """True when an answer had begun before a pause and went on after it."""
    return bool(record.chunk_s) and record.chunk_s[0] <= before and record.chunk_s[-1] >= after


def _trend(speeds: Sequence[float]) -> list[str]:
    """Requests that get slower or faster over the launch, by thirds and a rank test."""
    if len(speeds) < 12:
        return []
    third = len(speeds) // 3
    first, last = statistics.median(speeds[:third]), statistics.median(speeds[-third:])
    change = last / first - 1
    if abs(change) < _TREND or abs(_rank_trend(speeds)) < 3.0:
        return []
    word = "slower" if change < 0 else "faster"
    return [f"requests became {abs(change):.0%} {word} from the first third to the last"]


def acceptance_trend(lengths: Sequence[float]) -> list[str]:
    """Acceptance lengths by block, in time order, that fall: a draft that decays while it serves.

    Blocks differ in their prompts, so a line through them must be sure beyond that.
    """
    values = np.asarray(lengths, dtype=float)
    count = len(values)
    if count < 5 or not np.all(np.isfinite(values)):
        return []
    places = np.arange(count) - (count - 1) / 2
    slope = float(places @ values) / float(places @ places)
    left = values - values.mean() - slope * places
    error = float(np.sqrt(left @ left / (count - 2) / (places @ places)))
    first, last = (float(values.mean() + slope * places[end]) for end in (0, -1))
    if slope > -4 * error or last > first * (1 - _DECAY):
        return []
    return [f"acceptance length fell from {first:.2f} to {last:.2f} over the blocks of the launch"]


def _rank_trend(values: Sequence[float]) -> float:
    """Mann-Kendall's S over its standard deviation: beyond ±3 a trend is no accident."""
    array = np.asarray(values)
    n = len(array)
    score = float(np.sign(array[None, :] - array[:, None])[np.triu_indices(n, 1)].sum())
    return score / float(np.sqrt(n * (n - 1) * (2 * n + 5) / 18))


def _two_modes(speeds: Sequence[float]) -> list[str]:
    """Speeds in two separate groups, by the best split of the sorted logarithms."""
    if len(speeds) < 16:
        return []
    logs = np.sort(np.log(speeds))
    cut = _best_split(logs)
    low, high = logs[:cut], logs[cut:]
    spread = max(float(low.std()), float(high.std()), 1e-9)
    apart = float(high.mean() - low.mean())
    gap = float(high[0] - low[-1])
    if apart < np.log(_SLOW_START) or apart < 6 * spread or gap < 2 * spread:
        return []
    return [
        f"speeds fall into two groups: {len(low)} requests near {np.exp(low.mean()):.3g} tok/s, "
        f"{len(high)} near {np.exp(high.mean()):.3g} tok/s"
    ]


def _best_split(logs: np.ndarray) -> int:
    """Where to cut sorted values in two, at least a tenth on each side, for least variance."""
    least = max(3, len(logs) // 10)
    cuts = range(least, len(logs) - least + 1)
    return min(
        cuts, key=lambda cut: float(logs[:cut].var() * cut + logs[cut:].var() * (len(logs) - cut))
    )
