"""The small Gaussian process: interpolates, is unsure far away, and finds what matters."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.model.gaussian import Kernel, Prior, expected_excess, fit_process

PRIOR = Prior(scale=0.5)
GRID = np.linspace(0.0, 1.0, 9)[:, None]


def test_correlation_falls_with_distance() -> None:
    kernel = Kernel(np.array([0.5]), 0.5, 1.0)
    row = kernel.correlations(np.zeros((1, 1)), GRID)[0]
    assert row[0] == pytest.approx(1.0)
    assert list(row) == sorted(row, reverse=True)


def test_exact_values_are_interpolated() -> None:
    values = np.sin(3.0 * GRID[:, 0])
    process = fit_process(GRID[::2], values[::2], np.full(5, 1e-4), PRIOR)
    means, sds = process.predict(GRID)
    assert means == pytest.approx(values, abs=0.08)
    assert means[::2] == pytest.approx(values[::2], abs=1e-3)
    assert np.all(sds[::2] < sds[1::2].min())


def test_far_from_everything_the_prior_holds() -> None:
    process = fit_process(GRID[:3], np.array([1.0, 1.1, 1.2]), np.full(3, 0.01), Prior(mean=0.0))
    means, sds = process.predict(np.array([[50.0]]))
    assert means[0] == pytest.approx(0.0, abs=1e-3)
    assert sds[0] == pytest.approx(process.kernel.scale, rel=1e-3)


def test_a_column_that_does_not_matter_gets_a_long_length() -> None:
    rng = np.random.default_rng(1)
    points = rng.uniform(size=(30, 2))
    process = fit_process(points, np.sin(6 * points[:, 0]), np.full(30, 0.01), PRIOR)
    assert process.kernel.lengths[1] > 2 * process.kernel.lengths[0]


def test_noise_is_not_chased() -> None:
    rng = np.random.default_rng(2)
    values = 0.1 * rng.standard_normal(9)
    means, _ = fit_process(GRID, values, np.full(9, 0.1), PRIOR).predict(GRID)
    assert np.std(means) < np.std(values)


def test_expected_excess_is_the_integral() -> None:
    rng = np.random.default_rng(3)
    draws = rng.normal(-0.1, 0.2, 200_000)
    found = expected_excess(np.array([-0.1]), np.array([0.2]))[0]
    assert found == pytest.approx(np.maximum(draws, 0).mean(), rel=0.02)


def test_effects_that_add_up_are_told_from_few_points() -> None:
    corners = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)], dtype=float)
    values = corners @ np.array([0.3, -0.2, 0.1])
    seen = [0, 1, 2, 4, 7]
    process = fit_process(corners[seen], values[seen], np.full(5, 1e-3), PRIOR)
    means, _ = process.predict(corners)
    assert means == pytest.approx(values, abs=0.08)
