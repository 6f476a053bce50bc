"""Owns whether greedy answers of a server are never those of another, over several launches of
both: what finds changed answers where there are too few prompts to count matches.

Fisher's test on matches needs prompts; this one also uses that each server was launched again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.measure.distributions import fisher_less
from tuner.measure.records import RequestRecord

ALPHA = 0.01
LEAST_SHARE = 0.5
"""A draft verified in one pass rounds otherwise than single steps do: a few late differences in
every launch are that, not other answers. At least this share of the prompts must differ."""

_MOST = 64


@dataclass(frozen=True, slots=True)
class Separation:
    """Prompts whose answers by one server never occurred in any launch of the other.

    Args:
        prompts: prompts answered by both.
        separated: those without a common answer.
        p: chance of as many, if launches of both were launches of one server.
        is_steady: the reference's launches, two or more, never differ from each other.
    """

    prompts: int
    separated: int
    p: float
    is_steady: bool = False

    @property
    def is_mismatch(self) -> bool:
        """True when at least half of the prompts are answered otherwise, and not by chance."""
        return self.separated >= LEAST_SHARE * max(1, self.prompts) and self.p < ALPHA

    @property
    def is_total(self) -> bool:
        """True when no prompt is ever answered as by a reference that never differs from itself:
        where prompts are too few for a test, that is no match either."""
        return self.is_steady and self.separated == self.prompts > 0


def separation(
    reference: Sequence[Sequence[RequestRecord]], other: Sequence[Sequence[RequestRecord]]
) -> Separation:
    """Compare the answers of all launches of two servers, prompt by prompt.

    Under the null every split of a prompt's answers into the two servers is as likely, so the
    chance that they have none in common is counted exactly; prompts are taken as independent.
    """
    theirs, ours = _texts(reference), _texts(other)
    known = [name for name in theirs if name in ours]
    parted = [not set(theirs[name]) & set(ours[name]) for name in known]
    chances = [_chance(theirs[name], ours[name]) for name in known]
    is_steady = all(len(theirs[name]) > 1 and len(set(theirs[name])) == 1 for name in known)
    return Separation(len(known), sum(parted), _at_least(sum(parted), chances), is_steady)


def least_prompts(rounds: int) -> int:
    """The fewest prompts with which answers that all differ are found, after so many rounds."""
    alone = 2 / math.comb(2 * rounds, rounds)
    for count in range(1, _MOST):
        if alone**count < ALPHA or fisher_less(0, count, count, count) < ALPHA:
            return count
    return _MOST


def _texts(launches: Sequence[Sequence[RequestRecord]]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for records in launches:
        for record in records:
            if record.ok:
                texts.setdefault(record.prompt_id, []).append(record.text)
    return texts


def _chance(theirs: Sequence[str], ours: Sequence[str]) -> float:
    """Share of the ways to deal these texts to both servers that leave them no text in common."""
    groups = Counter([*theirs, *ours])
    ways = [1] + [0] * len(ours)
    for size in groups.values():
        for total in range(len(ours), size - 1, -1):
            ways[total] += ways[total - size]
    return ways[-1] / math.comb(len(theirs) + len(ours), len(ours))


def _at_least(count: int, chances: Sequence[float]) -> float:
    """Chance that at least so many of independent events happen."""
    exactly = [1.0] + [0.0] * len(chances)
    for chance in chances:
        for k in range(len(chances), 0, -1):
            exactly[k] = exactly[k] * (1 - chance) + exactly[k - 1] * chance
        exactly[0] *= 1 - chance
    return min(1.0, sum(exactly[count:]))
