"""Owns the clock of a host: seconds as a sum over what was counted.

Counts are exact and clocks are noisy, so one set of coefficients is fitted over the blocks of
all launches together: seconds = requests x a + steps x b + drafts x c + verified tokens x d +
draft passes x e, none of them negative. Residuals are relative; a quarter may be outliers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.model.gaussian import Array

COUNTS = ("request", "step", "draft", "verified token", "draft pass")
"""What the columns of a count matrix hold."""


@dataclass(frozen=True, slots=True)
class ClockPrior:
    """Seconds per count before any measurement, in times of a step without speculation."""

    means: Array
    sds: Array


ONE_LOAD = ClockPrior(np.array([0.3, 1.0, 0.2, 0.1, 0.08]), np.array([2.0, 0.5, 0.4, 0.25, 0.15]))
"""Before any measurement, in times of a step without speculation. A verified token costs
little on a GPU (verification fills idle arithmetic) and up to half a step on a CPU; a draft
costs something of its own, because a batch takes other code than a single token."""

LEAST_SPREAD = 0.003
ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds per count, their covariance, and the relative spread of single blocks."""

    seconds: Array
    covariance: Array
    spread: float

    def time(self, counts: Array) -> Array:
        """Predicted seconds of each row of counts."""
        predicted: Array = np.maximum(counts @ self.seconds, 1e-12)
        return predicted

    def relative_sd(self, counts: Array) -> Array:
        """Relative uncertainty of `time` that comes from the coefficients."""
        variances = np.einsum("ij,jk,ik->i", counts, self.covariance, counts)
        sds: Array = np.sqrt(np.maximum(variances, 0.0)) / self.time(counts)
        return sds


def fit_clock(counts: Array, seconds: Array, step_s: float, prior: ClockPrior = ONE_LOAD) -> Clock:
    """Fit by reweighted least squares on relative residuals.

    Args:
        counts: one row per block, columns as COUNTS, or as the prior has them.
        seconds: of each block.
        step_s: seconds of a step without speculation, which the prior is scaled by.
        prior: what each column is expected to cost.
    """
    scaled = counts * step_s / seconds[:, None]
    weights, spread = np.ones(len(seconds)), 0.1
    means, covariance = _posterior(scaled, weights / spread**2, prior)
    for _ in range(ROUNDS):
        residuals = 1.0 - scaled @ means
        spread = max(LEAST_SPREAD, 1.4826 * float(np.median(np.abs(residuals))))
        weights = 1.0 / (1.0 + (residuals / (2.0 * spread)) ** 2)
        means, covariance = _posterior(scaled, weights / spread**2, prior)
    return Clock(means * step_s, covariance * step_s**2, spread)


def _posterior(scaled: Array, weights: Array, prior: ClockPrior) -> tuple[Array, Array]:
    """Mean and covariance of the coefficients; what would be negative is held at 0."""
    active = np.ones(scaled.shape[1], dtype=bool)
    while True:
        means, covariance = _solve(scaled, weights, active, prior)
        if np.all(means >= 0):
            return means, covariance
        active[int(np.argmin(means))] = False


def _solve(
    scaled: Array, weights: Array, active: NDArray[np.bool_], prior: ClockPrior
) -> tuple[Array, Array]:
    chosen = scaled[:, active]
    precision = (chosen.T * weights) @ chosen + np.diag(prior.sds[active] ** -2)
    pull = (chosen.T * weights) @ np.ones(len(scaled))
    pull += prior.means[active] / prior.sds[active] ** 2
    inverse = np.linalg.inv(precision)
    means = np.zeros(scaled.shape[1])
    covariance = np.zeros((scaled.shape[1], scaled.shape[1]))
    means[active] = inverse @ pull
    covariance[np.ix_(active, active)] = inverse
    return means, covariance
