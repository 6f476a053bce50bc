"""Owns the acceptance per position with its binomial intervals, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.store.record import AcceptanceRecord

Array: TypeAlias = NDArray[np.float64]

Z95 = 1.959964

BEYOND_SD = 0.35
"""Uncertainty in logits per position that was never measured."""


@dataclass(frozen=True, slots=True)
class Position:
    """Share of drafts that were accepted up to this position, with its 95 % interval."""

    number: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Acceptance of one server: by position and by prompt category.

    `drafts` is how many drafts were counted; 0 unknown, then there are no intervals.
    """

    length: float
    positions: tuple[Position, ...] = ()
    drafts: int = 0
    by_category: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Length, positions with intervals, categories."""
        return {
            "length": self.length,
            "drafts": self.drafts,
            "per_position": [
                {"position": each.number, "share": each.share, "low": each.low, "high": each.high}
                for each in self.positions
            ],
            "by_category": dict(self.by_category),
        }

    def rates(self, depth: int) -> list[float]:
        """Acceptance at each position given the one before; the last known goes on."""
        known = [1.0, *(min(max(each.share, 1e-6), 1.0) for each in self.positions)]
        found = [min(b / a, 0.995) for a, b in pairwise(known)]
        if not found:  # only the length is known: the same rate at every position
            found = [_rate_of(self.length, depth)]
        return (found + [found[-1]] * depth)[:depth]

    def extended_by(self, deeper: Curve) -> Curve:
        """The curve with further positions as another server of the same draft accepted them."""
        own, others = self.positions, deeper.positions
        if not own or len(others) <= len(own) or not others[len(own) - 1].share > 0:
            return self
        scale = own[-1].share / others[len(own) - 1].share
        more = tuple(
            Position(each.number, each.share * scale, each.low * scale, each.high * scale)
            for each in others[len(own) :]
        )
        return replace(self, positions=(*own, *more))

    def lengths(self, depth: int, draws: int, *, lift: float = 0.0, seed: int = 7) -> Array:
        """Plausible acceptance lengths at a depth, one per draw.

        Args:
            depth: drafted positions.
            draws: how many.
            lift: logits added to every position, for a tree.
            seed: of the draws.
        """
        source = np.random.default_rng(seed)
        reached, total = np.ones(draws), np.ones(draws)
        tried = float(self.drafts or 100)
        for number, rate in enumerate(self.rates(depth), start=1):
            seen = number <= len(self.positions)
            odds = math.log(rate / (1 - rate)) + lift
            sd = 1 / math.sqrt(max(tried * rate * (1 - rate), 1.0))
            excess = 0.0 if seen else BEYOND_SD * (number - len(self.positions))
            drawn = source.normal(odds, math.hypot(sd, excess), size=draws)
            reached = reached / (1 + np.exp(-drawn))
            total = total + reached
            tried = tried * rate if seen else tried
        return total

    def mean_length(self, depth: int, lift: float = 0.0) -> float:
        """Expected acceptance length at a depth."""
        reached, total = 1.0, 1.0
        for rate in self.rates(depth):
            odds = math.log(rate / (1 - rate)) + lift
            reached /= 1 + math.exp(-odds)
            total += reached
        return total


def curve_of(acceptance: AcceptanceRecord | None, length: float | None) -> Curve | None:
    """The curve of a trial; None without speculation or counts."""
    if length is None:
        return None
    if acceptance is None:
        return Curve(length)
    drafts = acceptance.steps or 0
    shares = [share for share in acceptance.per_position if share == share]
    positions = tuple(
        Position(number, share, *wilson(share, drafts))
        for number, share in enumerate(shares, start=1)
    )
    return Curve(length, positions, drafts, dict(acceptance.by_category))


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share of `count` trials; [0, 1] when none were counted."""
    if count <= 0:
        return 0.0, 1.0
    square = Z95**2
    center = (share + square / (2 * count)) / (1 + square / count)
    half = math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    half *= Z95 / (1 + square / count)
    return max(0.0, center - half), min(1.0, center + half)


def _rate_of(length: float, depth: int) -> float:
    """The rate that, equal at all positions, gives a length."""
    low, high = 1e-4, 0.995
    for _ in range(50):
        middle = (low + high) / 2
        total = sum(middle**power for power in range(depth + 1))
        low, high = (middle, high) if total < length else (low, middle)
    return (low + high) / 2


def quantiles(values: Sequence[float] | Array) -> tuple[float, float]:
    """The central 95 % of some draws."""
    low, high = np.quantile(np.asarray(values, dtype=float), [0.025, 0.975])
    return float(low), float(high)
