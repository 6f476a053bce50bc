"""Owns a small Gaussian process: smooth interpolation with honest uncertainty.

The kernel is part sum, part product over columns: effects that add up (an environment variable
does the same at every depth) are learned from few points, interactions where they show. Lengths,
scale and that share are chosen by marginal likelihood from fixed grids: no optimiser that can
fail, the same answer on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

LENGTHS = (0.25, 0.5, 1.0, 2.0, 5.0)
"""Lengths that are tried, where a column spans 0 to 1."""

SHARES = (0.1, 0.5, 0.9)
"""Shares of the variance that adds up over columns."""

TYPICAL_LENGTH = 0.8
SWEEPS = 2


@dataclass(frozen=True, slots=True)
class Kernel:
    """Prior of a process: `scale` in the values' unit, one length per column, additive share.

    `noise` multiplies the noise that the values were said to have.
    """

    lengths: Array
    share: float
    scale: float
    noise: float = 1.0

    def correlations(self, a: Array, b: Array) -> Array:
        """Correlation of every row of `a` with every row of `b`."""
        columns = len(self.lengths)
        total = np.zeros((len(a), len(b)))
        squares = np.zeros((len(a), len(b)))
        for column, length in enumerate(self.lengths):
            square = ((a[:, column][:, None] - b[:, column][None, :]) / length) ** 2
            squares += square
            total += _matern(square)
        mixed: Array = self.share * total / columns + (1.0 - self.share) * _matern(squares)
        return mixed


def _matern(squares: Array) -> Array:
    root = np.sqrt(5.0 * squares)
    correlations: Array = (1.0 + root + root**2 / 3.0) * np.exp(-root)
    return correlations


@dataclass(frozen=True, slots=True)
class Process:
    """A fitted process around `mean`."""

    points: Array
    kernel: Kernel
    mean: float
    weights: Array
    factor: Array

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the smooth value (its noise not included)."""
        cross = self.kernel.correlations(points, self.points)
        means = self.mean + cross @ self.weights
        solved = np.linalg.solve(self.factor, cross.T)
        variances = 1.0 - np.sum(solved**2, axis=0)
        return means, self.kernel.scale * np.sqrt(np.maximum(variances, 1e-12))

    def scatter(self, values: Array) -> tuple[float, float]:
        """How far the fitted values lie from the smooth one: sum of squares, and how many of
        them are left to tell it after what the process took."""
        inverse = np.linalg.inv(self.factor)
        correlations = self.kernel.correlations(self.points, self.points)
        taken = float(np.sum((inverse.T @ inverse) * correlations))
        errors = values - self.predict(self.points)[0]
        return float(errors @ errors), max(0.0, len(values) - taken)


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before any value is seen.

    Args:
        mean: far from everything seen; None: the mean of the values.
        scale: the typical standard deviation around it.
        factors: how many times that scale the values may make it.
        noises: how many times the stated noise the values may show.
    """

    mean: float | None = None
    scale: float = 0.2
    factors: tuple[float, ...] = (0.5, 1.0, 2.0)
    noises: tuple[float, ...] = (1.0,)


def fit_process(points: Array, values: Array, noise: Array, prior: Prior) -> Process:
    """Fit the kernel by marginal likelihood; `noise` is each value's standard deviation."""
    center = float(np.mean(values)) if prior.mean is None else prior.mean
    centred = values - center
    kernel = _fit_kernel(points, centred, noise, prior)
    factor = _factor(kernel.correlations(points, points), noise * kernel.noise, kernel.scale)
    weights = np.linalg.solve(factor.T, np.linalg.solve(factor, centred))
    return Process(points, kernel, center, weights, factor)


def _fit_kernel(points: Array, centred: Array, noise: Array, prior: Prior) -> Kernel:
    best = Kernel(np.full(points.shape[1], 1.0), 0.5, prior.scale)
    found = _likelihood(best, points, centred, noise, prior)
    moving = [column for column in range(points.shape[1]) if np.ptp(points[:, column]) > 0]
    for _ in range(SWEEPS if len(centred) > 2 else 0):
        for coordinate in [-3, -2, -1, *moving]:
            for tried in _along(best, coordinate, prior):
                likelihood = _likelihood(tried, points, centred, noise, prior)
                if likelihood > found + 1e-9:
                    found, best = likelihood, tried
    return best


def _along(start: Kernel, coordinate: int, prior: Prior) -> list[Kernel]:
    """Kernels that differ from `start` in noise (-3), scale (-2), share (-1) or one length."""
    if coordinate == -3:
        return [replace(start, noise=factor) for factor in prior.noises]
    if coordinate == -2:
        return [replace(start, scale=prior.scale * factor) for factor in prior.factors]
    if coordinate == -1:
        return [replace(start, share=share) for share in SHARES]
    changed = np.arange(len(start.lengths)) == coordinate
    return [replace(start, lengths=np.where(changed, each, start.lengths)) for each in LENGTHS]


def _factor(correlations: Array, noise: Array, scale: float) -> Array:
    diagonal = np.maximum((noise / scale) ** 2, 1e-6)
    factor: Array = np.linalg.cholesky(correlations + np.diag(diagonal))
    return factor


def _likelihood(
    kernel: Kernel, points: Array, centred: Array, noise: Array, prior: Prior
) -> float:
    factor = _factor(kernel.correlations(points, points), noise * kernel.noise, kernel.scale)
    solved = np.linalg.solve(factor, centred / kernel.scale)
    logs = float(np.sum(np.log(np.diag(factor)))) + len(centred) * math.log(kernel.scale)
    unusual = float(np.sum(np.log(kernel.lengths / TYPICAL_LENGTH) ** 2)) * 0.25
    unusual += 0.5 * math.log(kernel.scale / prior.scale) ** 2
    unusual += 0.5 * math.log(kernel.noise) ** 2
    return -0.5 * float(solved @ solved) - logs - unusual


def expected_excess(means: Array, sds: Array) -> Array:
    """Expected positive part of normal variables: what a value above 0 can be hoped to add."""
    z = means / sds
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in z])
    excess: Array = sds * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) + means * below
    return np.maximum(excess, 0.0)
