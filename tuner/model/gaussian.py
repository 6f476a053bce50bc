"""Owns a small Gaussian process: smooth interpolation with honest uncertainty.

Matérn 5/2 with one length per column, lengths and noise chosen by marginal likelihood from fixed
grids: no optimiser that can fail, the same answer on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

LENGTHS = (0.15, 0.3, 0.6, 1.2, 2.5, 6.0)
"""Lengths that are tried, where a column spans 0 to 1."""

SWEEPS = 2


@dataclass(frozen=True, slots=True)
class Process:
    """A fitted process; `scale` is its prior standard deviation around `mean`."""

    points: Array
    lengths: Array
    mean: float
    scale: float
    weights: Array
    factor: Array

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the smooth value (its noise not included)."""
        cross = matern(points, self.points, self.lengths)
        means = self.mean + cross @ self.weights
        solved = np.linalg.solve(self.factor, cross.T)
        variances = 1.0 - np.sum(solved**2, axis=0)
        return means, self.scale * np.sqrt(np.maximum(variances, 1e-12))


def matern(a: Array, b: Array, lengths: Array) -> Array:
    """Correlation of every row of `a` with every row of `b`."""
    left, right = a / lengths, b / lengths
    squares = np.sum(left**2, 1)[:, None] + np.sum(right**2, 1)[None, :] - 2 * left @ right.T
    root = np.sqrt(5.0 * np.maximum(squares, 0.0))
    correlations: Array = (1.0 + root + root**2 / 3.0) * np.exp(-root)
    return correlations


def fit_process(
    points: Array,
    values: Array,
    noise: Array,
    *,
    mean: float | None = None,
    least_scale: float = 1e-3,
) -> Process:
    """Fit lengths and scale by marginal likelihood; `noise` is the standard deviation of each
    value.

    Args:
        points: one row per value, columns spanning about 0 to 1.
        values: what was seen.
        noise: known standard deviation of each value, in the values' unit.
        mean: the value far from everything seen; None: the mean of the values.
        least_scale: the process is never surer than this prior standard deviation.
    """
    center = float(np.mean(values)) if mean is None else mean
    centred = values - center
    scales = _scales(centred, least_scale)
    lengths = np.full(points.shape[1], 1.2)
    best, scale = _best_scale(points, centred, noise, lengths, scales)
    for _ in range(SWEEPS):
        for column in range(points.shape[1]):
            if np.ptp(points[:, column]) == 0:
                continue
            for length in LENGTHS:
                tried = lengths.copy()
                tried[column] = length
                likelihood, its_scale = _best_scale(points, centred, noise, tried, scales)
                if likelihood > best + 1e-9:
                    best, lengths, scale = likelihood, tried, its_scale
    factor = _factor(matern(points, points, lengths), noise, scale)
    weights = np.linalg.solve(factor.T, np.linalg.solve(factor, centred))
    return Process(points, lengths, center, scale, weights, factor)


def _scales(centred: Array, least: float) -> Array:
    spread = max(float(np.sqrt(np.mean(centred**2))) if len(centred) else 0.0, least)
    return np.array([max(least, factor * spread) for factor in (0.5, 1.0, 2.0)])


def _best_scale(
    points: Array, centred: Array, noise: Array, lengths: Array, scales: Array
) -> tuple[float, float]:
    correlations = matern(points, points, lengths)
    prior = -0.5 * float(np.sum((np.log(lengths / 0.8)) ** 2)) * 0.3
    found = [(_likelihood(correlations, centred, noise, scale) + prior, scale) for scale in scales]
    best = max(found)
    return best[0], float(best[1])


def _factor(correlations: Array, noise: Array, scale: float) -> Array:
    diagonal = np.maximum((noise / scale) ** 2, 1e-8)
    factor: Array = np.linalg.cholesky(correlations + np.diag(diagonal))
    return factor


def _likelihood(correlations: Array, centred: Array, noise: Array, scale: float) -> float:
    factor = _factor(correlations, noise, scale)
    solved = np.linalg.solve(factor, centred / scale)
    logs = float(np.sum(np.log(np.diag(factor)))) + len(centred) * float(np.log(scale))
    return -0.5 * float(solved @ solved) - logs


def expected_excess(means: Array, sds: Array) -> Array:
    """Expected positive part of normal variables: what a value above 0 can be hoped to add."""
    z = means / sds
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in z])
    excess: Array = sds * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) + means * below
    return np.maximum(excess, 0.0)
