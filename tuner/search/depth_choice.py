"""Owns which depth is best at each load: pure, from measured series to a table of depths.

Ties go to the smaller depth, 0 included: drafting that gains nothing only costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.args import ServerArgs
from tuner.engines.base import Engine
from tuner.measure.statistics import Interval, family_level, gain_interval, gain_intervals
from tuner.search.history import History
from tuner.search.objective import Objective, pooled_reference
from tuner.store.record import TrialRecord

LEVEL = 0.95
PROBE: Mapping[int, int] = {1: 1}
Launches = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Choice:
    """The depth at one load, and the gain over the baseline that it rests on."""

    depth: int
    gain: Interval


def family_of(
    engine: Engine, records: Iterable[TrialRecord], anchor: TrialRecord | None
) -> dict[int, TrialRecord]:
    """Measured chains that differ in nothing but depth, by depth.

    The anchor's family where it has one, otherwise that of the best trial.
    """
    families: dict[str, dict[int, TrialRecord]] = {}
    key_of: dict[int, str] = {}
    for record in records:
        depth, key = _place(engine, record)
        if key and depth:
            families.setdefault(key, {})[depth] = record
            key_of[record.number] = key
    if anchor is not None and anchor.number in key_of:
        return families[key_of[anchor.number]]
    if not families:
        return {}
    best = max(families.values(), key=lambda family: max(map(_value, family.values())))
    return dict(sorted(best.items()))


def searched_gains(
    objective: Objective, history: History, family: Mapping[int, TrialRecord], label: str
) -> dict[int, float]:
    """Log gain over the baseline at a load by depth, from the search's own blocks."""
    reference = pooled_reference(
        [series for record in history.baselines if (series := blocks_at(record, objective, label))]
    )
    gains = {0: 0.0}
    for depth, record in family.items():
        ratio = objective.ratio(blocks_at(record, objective, label), reference)
        gains[depth] = math.log(ratio) if ratio else -math.inf
    return gains


def worth_confirming(by_load: Sequence[Mapping[int, float]], margin: float) -> list[int]:
    """Depths that enter the confirmation: the best at each load, ties within the margin going to
    the smaller; the best single one over all loads, which a table must beat; and 0.

    [0] alone where speculation pays at no load.
    """
    best = {
        min(depth for depth, gain in gains.items() if gain >= max(gains.values()) - margin)
        for gains in by_load
    }
    if best == {0}:
        return [0]
    single = max(by_load[0], key=lambda depth: sum(gains[depth] for gains in by_load))
    return sorted({0, single, *best})


def confirmed_choice(servers: Mapping[int, Launches], direction: str) -> Choice:
    """The best depth at a load by interleaved launches; depth 0 is the baseline.

    A deeper server is taken only where the noise can tell it from every smaller depth as good.
    """
    depths = sorted(depth for depth in servers if depth)
    level = family_level(LEVEL, len(depths))
    found = gain_intervals(
        [servers[depth] for depth in depths], servers[0], direction=direction, level=level
    )
    gains = dict(zip(depths, found, strict=True))
    proven = {depth: gain for depth, gain in gains.items() if gain.is_gain}
    if not proven:
        best = max(gains.values(), key=lambda gain: gain.ratio)
        return Choice(0, best)
    top = max(proven, key=lambda depth: proven[depth].ratio)
    for depth in sorted(proven):
        if depth == top or not _beats(servers[top], servers[depth], direction):
            return Choice(depth, proven[depth])
    return Choice(top, proven[top])


def blocks_at(record: TrialRecord, objective: Objective, label: str) -> list[float]:
    """A trial's per-block values of the objective at one load point."""
    for point in record.load_points:
        if point.load == label:
            return list(point.per_block.get(objective.metric, []))
    return []


def _beats(one: Launches, other: Launches, direction: str) -> bool:
    return gain_interval(one, other, direction=direction, level=LEVEL).is_gain


def _place(engine: Engine, record: TrialRecord) -> tuple[int, str]:
    """A trial's depth and the key of its family; "" for one that has none."""
    args = ServerArgs(record.requested_args.flags, record.requested_args.env)
    depth = engine.depth(args)
    usable = record.state == "complete" and not record.is_synthetic
    table = engine.scheduled(args, PROBE, "") if usable and depth else None
    return (depth or 0, table.args.digest) if table else (0, "")


def _value(record: TrialRecord) -> float:
    return record.vs_baseline or 0.0
