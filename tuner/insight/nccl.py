"""Owns what each NCCL setting did to speed: pairs of trials that differ in it alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tuner.store.record import TrialRecord

PREFIX = "NCCL_"
ABSENT = "unset"


@dataclass(frozen=True, slots=True)
class Effect:
    """One change of one variable: the ratio of speeds, from so many pairs of trials."""

    variable: str
    before: str
    after: str
    ratio: float
    pairs: int
    is_inert: bool


def nccl_effects(trials: Sequence[TrialRecord], noise: float) -> list[Effect]:
    """Every change that was measured in trials otherwise equal, the most telling first.

    `noise` is the relative difference that means nothing: a change within it is inert.
    """
    seen: dict[tuple[str, str, str], list[float]] = {}
    measured = [t for t in trials if t.state == "complete" and t.vs_baseline]
    for one in measured:
        for other in measured:
            change = _change(one, other)
            if change is not None:
                ratio = (other.vs_baseline or 1.0) / (one.vs_baseline or 1.0)
                seen.setdefault(change, []).append(ratio)
    effects = [
        Effect(*change, median(ratios), len(ratios), _is_inert(ratios, noise))
        for change, ratios in seen.items()
    ]
    return sorted(effects, key=lambda each: -abs(math.log(each.ratio)))


def _change(one: TrialRecord, other: TrialRecord) -> tuple[str, str, str] | None:
    """The variable in which two trials differ, if it is the only difference; each pair once."""
    a, b = one.requested_args, other.requested_args
    if a.flags != b.flags:
        return None
    names = [n for n in {**a.env, **b.env} if a.env.get(n) != b.env.get(n)]
    if len(names) != 1 or not names[0].startswith(PREFIX):
        return None
    before, after = (str(args.env.get(names[0]) or ABSENT) for args in (a, b))
    is_forward = before == ABSENT or (after != ABSENT and before < after)
    return (names[0], before, after) if is_forward else None


def _is_inert(ratios: Sequence[float], noise: float) -> bool:
    return all(abs(math.log(ratio)) <= noise for ratio in ratios)
