"""Owns the choice among confirmed servers that all beat the baseline, and what decided it.

Launches decide where they separate servers. Where they do not, the model that was fitted to the
whole search does; among servers that are as good as equal, the simpler one is taken. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.measure.statistics import mean_interval, robust_center
from tuner.search.objective import Objective
from tuner.search.weighing import Expected, Weighed, weigh
from tuner.store.record import ConfirmationLaunch, FinalistRecord

LEVEL = 0.95

ALIKE = 0.0025
"""Log units within which two servers are as good as equal, so that simplicity may decide: the
best guess at a difference that launches cannot show is worth more than a shorter command."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The server that is recommended, what decided for it (see `RecommendationRecord`), why."""

    winner: FinalistRecord
    decided_by: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rivals:
    """Usable finalists, best by their launches first, and what is known of them."""

    objective: Objective
    usable: Sequence[FinalistRecord]
    launches: Sequence[ConfirmationLaunch]
    weighed: Mapping[str, Weighed]

    def gain(self, record: FinalistRecord) -> float:
        """What is believed of one: log ratio to the baseline."""
        known = self.weighed.get(record.digest)
        return known.gain if known else math.log(record.ratio)

    def words(self, one: FinalistRecord, other: FinalistRecord) -> str:
        """How far launches of two are apart, and how far the noise lets them be."""
        difference, half = difference_of(self.objective, one, other, self.launches)
        return f"{math.expm1(abs(difference)):.1%} < {math.expm1(half):.1%}"

    def are_apart(self, one: FinalistRecord, other: FinalistRecord) -> bool:
        """True when the launches tell them apart."""
        difference, half = difference_of(self.objective, one, other, self.launches)
        return abs(difference) > half


def choose(
    objective: Objective,
    usable: Sequence[FinalistRecord],
    complexity: Mapping[str, float],
    launches: Sequence[ConfirmationLaunch],
    expected: Mapping[str, Expected] | None = None,
) -> Choice:
    """The best of usable finalists.

    Args:
        objective: what is compared.
        usable: finalists that beat the baseline, best by their launches first; not empty.
        complexity: of each by digest.
        launches: the confirmation's.
        expected: what the model expects of each, by digest; None: there is no model.
    """
    digests = [record.digest for record in usable]
    weighed = weigh(digests, launches, objective, expected)
    rivals = Rivals(objective, usable, launches, weighed)
    first = usable[0]
    near = [first, *(each for each in usable[1:] if not rivals.are_apart(first, each))]
    best = max(near, key=rivals.gain)
    reasons, by = _told_by(rivals, near, best)
    simplest = min(
        (each for each in near if rivals.gain(best) - rivals.gain(each) <= ALIKE),
        key=lambda each: (complexity[each.digest], -rivals.gain(each)),
    )
    if complexity[simplest.digest] < complexity[best.digest]:
        reasons = [
            f"Trials {best.trial} and {simplest.trial} differ by less than the noise "
            f"({rivals.words(best, simplest)}); the simpler server is preferred."
        ]
        best, by = simplest, "simplicity"
    return Choice(best, by, tuple(reasons))


def _told_by(
    rivals: Rivals, near: Sequence[FinalistRecord], best: FinalistRecord
) -> tuple[list[str], str]:
    """What decided for the best of those that launches cannot tell from the first."""
    first = rivals.usable[0]
    known = rivals.weighed.get(best.digest)
    share = known.model_share if known else 0.0
    if len(near) == 1 or share == 0.0:
        return [], "launches"
    other = first if best is not first else near[1]
    between = f"Launches cannot tell trials {other.trial} and {best.trial} apart"
    reasons = [
        f"{between} ({rivals.words(other, best)}); the model decides, with {share:.0%} of the "
        f"weight, for trial {best.trial}."
    ]
    return reasons, "model" if share >= 0.5 else "launches and model"


def difference_of(
    objective: Objective,
    one: FinalistRecord,
    other: FinalistRecord,
    launches: Sequence[ConfirmationLaunch],
) -> tuple[float, float]:
    """Mean log ratio of two finalists paired by round, and half its 95 % interval; infinitely
    far apart where fewer than two rounds have both, so that nobody wins by having failed."""
    first = {each.round: each for each in launches if each.digest == one.digest and each.trial}
    gains = [
        robust_center(objective.log_gains(first[launch.round].per_block, launch.per_block))
        for launch in launches
        if launch.digest == other.digest and launch.trial and launch.round in first
    ]
    known = [gain for gain in gains if math.isfinite(gain)]
    if len(known) < 2:
        return math.inf, 0.0
    mean, low, high = mean_interval(known, LEVEL)
    return mean, (high - low) / 2.0
