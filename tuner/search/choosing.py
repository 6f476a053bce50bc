"""Owns the choice among confirmed servers that all beat the baseline, and what decided it.

The model that was fitted to all launches, of the search and of the confirmation, decides. Where
launches contradict it beyond their noise it does not fit, and they decide; so they do without a
model. Among servers that are as good as equal, the simpler one is taken. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner import units
from tuner.measure.statistics import mean_interval, robust_center
from tuner.search.objective import Objective
from tuner.search.weighing import Expected, Launched, corrected, launched
from tuner.store.record import ConfirmationLaunch, FinalistRecord

LEVEL = 0.95

ALIKE = 0.0025
"""Log units within which two servers are as good as equal, so that simplicity may decide: the
best guess at a difference that launches cannot show is worth more than a shorter command."""


CONTRADICTED = 3.0
"""Standard deviations of a difference between launches from which on no model is believed."""


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
    measured: Launched
    expected: Mapping[str, Expected]

    @property
    def has_model(self) -> bool:
        """True when a model knows every one of them."""
        return all(record.digest in self.expected for record in self.usable)

    def gain(self, record: FinalistRecord) -> float:
        """What is believed of one: log ratio to the baseline."""
        if self.has_model:
            return self.weighed[record.digest]
        return self.measured.gains.get(record.digest, math.log(record.ratio))

    @property
    def weighed(self) -> dict[str, float]:
        """What the model expects of each, corrected by its launches: what is a server's own, no
        model that is shared by all can learn."""
        return corrected({each.digest: self.expected[each.digest] for each in self.usable},
                         self.measured)  # fmt: skip

    def near(self) -> list[FinalistRecord]:
        """Those that launches do not show to be slower than another one."""
        known = self.measured.gains
        if not self.has_model or not all(each.digest in known for each in self.usable):
            first = self.usable[0]
            return [first, *(e for e in self.usable[1:] if not self.are_apart(first, e))]
        fastest = max(self.usable, key=lambda each: known[each.digest]).digest
        return [
            each
            for each in self.usable
            if self.measured.sigmas(fastest, each.digest) < CONTRADICTED
        ]

    def words(self, one: FinalistRecord, other: FinalistRecord) -> str:
        """How far launches of two are apart, and how far the noise lets them be."""
        difference, half = difference_of(self.objective, one, other, self.launches)
        sign = "<" if abs(difference) < half else ">"
        return f"{math.expm1(abs(difference)):.1%} {sign} {math.expm1(half):.1%}"

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
    measured = launched([record.digest for record in usable], launches, objective)
    rivals = Rivals(objective, usable, launches, measured, expected or {})
    near = rivals.near()
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
    """What decided for the best of those that launches do not contradict."""
    first = rivals.usable[0]
    if len(near) == 1 or not rivals.has_model:
        return [], "launches"
    other = first if best is not first else next(each for each in near if each is not best)
    is_apart = rivals.are_apart(first, best if best is not first else other)
    if best is first and is_apart:
        return [], "launches"
    between = f"Launches cannot tell trials {other.trial} and {best.trial} apart"
    if is_apart:
        between = f"Single launches differ by more than trials {other.trial} and {best.trial} do"
    ratios = [units.ratio(math.exp(rivals.gain(each))) for each in (best, other)]
    reasons = [
        f"{between} ({rivals.words(other, best)}); the model fitted to all launches decides for "
        f"trial {best.trial} ({ratios[0]} against {ratios[1]})."
    ]
    return reasons, "launches and model" if best is first else "model"


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
