"""Owns how many drafted tokens are accepted: one curve for all depths, moved per server.

A server is described by two numbers. `coverage`: the share of tokens that a drafting step
produced (1 for a draft model, less where a lookup finds nothing). `level`: how far its
conditional acceptance per position lies from the reference curve, in logits. Both hardly depend
on the depth: what is learned at one depth holds at the others. From them follows, per token,

    accepted per draft  A = sum over positions i <= depth of product over j <= i of r_j
    drafting steps      D = coverage / (1 + A)
    steps               1 - coverage + D
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.model.gaussian import Array

POSITIONS = 64
"""Deeper positions are counted with the acceptance of the last one."""

HIGHEST = 6.0
"""Largest level in logits: an acceptance of 0.998 per position."""

BISECTIONS = 40


@dataclass(frozen=True, slots=True)
class Curve:
    """Reference logits of the conditional acceptance at positions 1, 2, …"""

    logits: Array

    def accepted(self, levels: Array, depths: Array) -> Array:
        """Accepted tokens per draft of the given depths, for servers at the given levels."""
        rates = 1.0 / (1.0 + np.exp(-(levels[:, None] + self.logits[None, :])))
        totals: Array = np.cumsum(np.cumprod(rates, axis=1), axis=1)
        last = np.clip(np.ceil(depths).astype(int), 1, POSITIONS) - 1
        reached = np.take_along_axis(totals, last[:, None], axis=1)[:, 0]
        found: Array = np.where(depths > 0, reached, 0.0)
        return found

    def levels(self, accepted: Array, depths: Array) -> Array:
        """The level at which a draft of each depth has so many accepted tokens."""
        low = np.full(len(accepted), -HIGHEST - float(self.logits.max()))
        high = np.full(len(accepted), HIGHEST - float(self.logits.min()))
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            short = self.accepted(middle, depths) < accepted
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        levels: Array = 0.5 * (low + high)
        return levels


def curve_from(per_position: Sequence[float]) -> Curve:
    """The curve of a run that reported its acceptance per position; flat without one."""
    if not per_position:
        return Curve(np.zeros(POSITIONS))
    shares = np.clip(np.asarray(per_position, dtype=float), 1e-3, 0.999)
    rates = np.clip(shares / np.concatenate([[1.0], shares[:-1]]), 0.02, 0.995)
    padded = np.full(POSITIONS, rates[-1])
    padded[: min(len(rates), POSITIONS)] = rates[:POSITIONS]
    logits: Array = np.log(padded / (1.0 - padded))
    return Curve(logits)


def logit(share: Array) -> Array:
    """Log odds, bounded so that 0 and 1 are finite."""
    bounded = np.clip(share, 0.005, 0.995)
    odds: Array = np.log(bounded / (1.0 - bounded))
    return odds


def share_of(log_odds: Array) -> Array:
    """Inverse of `logit`."""
    shares: Array = 1.0 / (1.0 + np.exp(-log_odds))
    return shares
