"""Owns what is expected of a launch beside its speed: that it runs, that it keeps the outcome
constraints, how long it takes, and how much launches differ."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from tuner.model.gaussian import Array
from tuner.model.observation import Designs
from tuner.store.baselines import sentinels_of
from tuner.store.record import TrialRecord

NOISE = 0.03
"""Launch noise in log units that is assumed until the baseline was launched again."""


def launch_noise(records: Sequence[TrialRecord], metric: str, load: str) -> float:
    """Launch noise in log units, from the baseline's repeats where there are some.

    A record's own ratio cannot tell it: that of a baseline is 1 by definition.
    """
    known = sentinels_of(records, metric, load).noise
    return NOISE if known.df < 2 else max(0.005, known.sd)


def working_chances(designs: Designs, ran: Sequence[int], failed: Sequence[int]) -> Array:
    """Chance that each server runs, from the launches like it that failed by their own fault.

    One that drafts at least as much as a failed server in every respect is taken to be like it:
    memory and limits give out in that direction.
    """
    if not failed:
        return np.ones(designs.count)
    for_it, against = _nearness(designs.rows, ran), _nearness(designs.rows, failed)
    sizes = np.stack([designs.depth, designs.nodes, designs.branch], axis=1)
    for server in failed:
        against += 0.7 * np.all(sizes >= sizes[server], axis=1)
    for server in ran:
        for_it += 0.7 * np.all(sizes <= sizes[server], axis=1)
    chances: Array = (for_it + 0.4) / (for_it + against + 0.4)
    return chances


def allowed_chances(rows: Array, kept: Sequence[int], broken: Sequence[int]) -> Array:
    """Chance that each server keeps the outcome constraints, from measured ones near it."""
    if not broken:
        return np.ones(len(rows))
    for_it, against = _nearness(rows, kept), _nearness(rows, broken)
    chances: Array = (for_it + 0.5) / (for_it + against + 0.5)
    return chances


def _nearness(rows: Array, others: Sequence[int]) -> Array:
    squares = ((rows[:, None, :] - rows[list(others)][None, :, :]) ** 2).sum(axis=2)
    near: Array = np.exp(-6.0 * squares).sum(axis=1)
    return near


def expected_seconds(records: Sequence[TrialRecord], means: Array) -> Array:
    """Seconds a launch of each server takes: what launching took, measuring by its speed."""
    known = [r.seconds for r in records if r.seconds.total > 0 and r.state != "failed"]
    if not known:
        return np.ones(len(means))
    measuring = statistics.median(s.measure + s.warm_up for s in known)
    other = statistics.median(s.total - s.measure - s.warm_up for s in known)
    seconds: Array = np.maximum(1e-3, other + measuring * np.exp(-np.clip(means, -2.0, 2.0)))
    return seconds
