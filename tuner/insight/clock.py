"""Owns what a step costs: a base, and more per draft, per draft pass and per verified token.

Fitted by least squares on the counts of every server of a study, the baseline among them. Counts
alone cannot always tell the parts apart (in a chain every pass is also a verified token); a weak
prior decides then, and the covariance says how little is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.insight.counts import Steps

Array: TypeAlias = NDArray[np.float64]

PRIOR_MEANS = np.array([1.0, 0.1, 0.08, 0.08])
PRIOR_SDS = np.array([0.5, 0.3, 0.15, 0.25])
"""In times of a step without speculation: base, draft, draft pass, verified token."""

LEAST_SPREAD = 0.01
DRAWS = 800
SEED = 20_261_101


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds per step, draft, draft pass and verified token, with their covariance.

    `servers` is how many distinct counts it rests on, `spread` the relative size of what it does
    not explain.
    """

    seconds: Array
    covariance: Array
    spread: float
    servers: int

    def step(self, verified: float, passes: float, drafting: float = 1.0) -> float:
        """Expected seconds of a step."""
        return float(row(verified, passes, drafting) @ self.seconds)

    def draws(self) -> Array:
        """Plausible coefficients, one row each; the same on every machine."""
        source = np.random.default_rng(SEED)
        found: Array = source.multivariate_normal(
            self.seconds, self.covariance, size=DRAWS, method="eigh"
        )
        return np.maximum(found, 0.0)


def row(verified: float, passes: float, drafting: float = 1.0) -> Array:
    """One server as the clock counts it, per step."""
    return np.array([1.0, drafting, passes * drafting, verified * drafting])


def fit_clock(counted: Sequence[Steps]) -> Clock | None:
    """Fit to servers that were counted and timed; None without a single one."""
    known = [each for each in counted if each.seconds > 0]
    if not known:
        return None
    plain = [each.seconds for each in known if not each.drafting]
    unit = float(np.median(plain)) if plain else min(each.seconds for each in known)
    rows = np.array([row(each.verified, each.passes, each.drafting) for each in known])
    seconds = np.array([each.seconds for each in known])
    scaled = rows * unit / seconds[:, None]
    spread = 0.03
    for _ in range(8):
        means, covariance = _posterior(scaled, spread)
        residuals = 1.0 - scaled @ means
        spread = max(LEAST_SPREAD, 1.4826 * float(np.median(np.abs(residuals))))
    shapes = len({tuple(np.round(each, 3)) for each in rows})
    return Clock(means * unit, covariance * unit**2, spread, shapes)


def _posterior(scaled: Array, spread: float) -> tuple[Array, Array]:
    """Mean and covariance; what would be negative is held at 0."""
    active = np.ones(scaled.shape[1], dtype=bool)
    while True:
        chosen = scaled[:, active] / spread
        precision = chosen.T @ chosen + np.diag(PRIOR_SDS[active] ** -2)
        pull = chosen.sum(axis=0) / spread + PRIOR_MEANS[active] / PRIOR_SDS[active] ** 2
        inverse = np.linalg.inv(precision)
        means, covariance = np.zeros(scaled.shape[1]), np.zeros((scaled.shape[1],) * 2)
        means[active] = inverse @ pull
        covariance[np.ix_(active, active)] = inverse
        if np.all(means >= 0):
            return means, covariance
        active[int(np.argmin(means))] = False
