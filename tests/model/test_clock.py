"""The clock: coefficients from noisy blocks, never negative, not moved by outliers."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.model.clock import COUNTS, fit_clock

TRUE = np.array([0.005, 0.0074, 0.0054, 0.0033, 0.0])


def blocks(count: int = 60, seed: int = 1) -> np.ndarray:  # type: ignore[type-arg]
    rng = np.random.default_rng(seed)
    steps = rng.integers(30, 90, count)
    drafts = (steps * rng.uniform(0, 0.6, count)).round()
    zeros = np.zeros(count)
    verified = drafts * rng.choice([2, 4, 8, 16], count)
    return np.stack([zeros + 1, steps, drafts, verified, zeros], axis=1)


def test_the_coefficients_are_found() -> None:
    counts = blocks()
    noise = np.exp(np.random.default_rng(2).normal(0, 0.03, len(counts)))
    clock = fit_clock(counts, counts @ TRUE * noise, 0.0074)
    assert clock.seconds[1] == pytest.approx(0.0074, rel=0.05)
    assert clock.seconds[3] == pytest.approx(0.0033, rel=0.05)
    assert clock.spread == pytest.approx(0.03, rel=0.4)


def test_a_quarter_of_outliers_changes_little() -> None:
    counts = blocks()
    seconds = counts @ TRUE * np.exp(np.random.default_rng(2).normal(0, 0.02, len(counts)))
    seconds[::4] *= 2.5
    clock = fit_clock(counts, seconds, 0.0074)
    fresh = blocks(seed=9)
    assert clock.time(fresh) == pytest.approx(fresh @ TRUE, rel=0.06)


def test_nothing_costs_less_than_nothing() -> None:
    counts = blocks()
    seconds = counts @ np.array([0.0, 0.01, 0.0, 0.0, 0.0]) - counts[:, 3] * 1e-5
    clock = fit_clock(counts, seconds, 0.01)
    assert np.all(clock.seconds >= 0)
    assert len(clock.seconds) == len(COUNTS)


def test_what_was_never_seen_is_uncertain() -> None:
    counts = blocks()
    counts[:, 2:] = 0.0
    clock = fit_clock(counts, counts @ TRUE, 0.0074)
    drafting = np.array([[1.0, 40.0, 20.0, 160.0, 0.0]])
    assert clock.relative_sd(drafting)[0] > 5 * clock.relative_sd(counts[:1])[0]
