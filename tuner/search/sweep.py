"""Owns a load that moves through the range within one launch, and its per-block series."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.measure.metrics import block_value
from tuner.measure.records import Block, LoadPoint, RequestRecord
from tuner.measure.statistics import Interval, gain_interval, log_ratios, robust_center
from tuner.search.bench import Bench
from tuner.store.record import ConfirmationLaunch


def sweep_of(loads: Sequence[LoadPoint]) -> tuple[LoadPoint, ...]:
    """Up through the concurrencies and down again: every level but the top is seen twice, once
    after a lower and once after a higher one."""
    rising = sorted((load for load in loads if load.concurrency), key=_concurrency)
    return (*rising, *reversed(rising[:-1]))


def block_series(bench: Bench, blocks: Sequence[Block]) -> list[float]:
    """The objective of every block in measuring order; 0 where a block does not tell."""
    limits = bench.workload.limits
    values = [block_value(bench.objective.metric, block, limits) for block in blocks]
    return [value if math.isfinite(value) else 0.0 for value in values]


def geometric_mean(values: Sequence[float]) -> float | None:
    """Of the positive values, as blocks of different loads are averaged; None without any."""
    logs = [math.log(value) for value in values if value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None


def at_load(launch: ConfirmationLaunch, label: str) -> list[float]:
    """The part of a launch's series that was measured at one load point."""
    pairs = zip(launch.per_block, launch.loads, strict=True)
    return [value for value, load in pairs if load == label]


def swept_gain(
    launches: Sequence[ConfirmationLaunch],
    reference: Sequence[ConfirmationLaunch],
    direction: str,
) -> Interval:
    """How much better launches are than others over the whole range, round by round.

    Robust within a load, where blocks repeat one another, and a plain mean over loads: a server
    that is better at one load only must not lose that gain as an outlier.
    """
    first = reference[0]
    return gain_interval(
        [[_level(launch, first, direction)] for launch in launches],
        [[_level(launch, first, direction)] for launch in reference],
    )


def _level(launch: ConfirmationLaunch, first: ConfirmationLaunch, direction: str) -> float:
    """The launch against the first one, above 1 is better: geometric mean over loads."""
    logs = [
        robust_center(log_ratios(at_load(launch, load), at_load(first, load), direction))
        for load in dict.fromkeys(first.loads)
    ]
    return math.exp(sum(logs) / len(logs))


def first_answers(blocks: Sequence[Block]) -> list[RequestRecord]:
    """The answers of the first pass over the prompts: later passes ask them again."""
    found: list[RequestRecord] = []
    seen: set[int] = set()
    for block in blocks:
        if block.index in seen:
            break
        seen.add(block.index)
        found += block.records
    return found


def _concurrency(load: LoadPoint) -> int:
    return load.concurrency or 0
