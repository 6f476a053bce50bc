"""Owns what every server would count per token: measured where it was launched, predicted from
the acceptance of the others where it was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.model.acceptance import Curve, curve_from, logit, share_of
from tuner.model.gaussian import Array, Prior, fit_process
from tuner.model.observation import ACCEPTED, DRAFTED, STEPS, TOKENS, Designs, Observation

BRANCH_LIFT = 0.5
"""Prior gain in logits per doubling of alternatives: what trees in the literature show."""

LEVEL_PRIOR = Prior(scale=0.7)
COVERAGE_PRIOR = Prior(scale=1.0)
UNCHECKED = 0.35
"""How far a computed value may be from the counted one, in logits: tokens and rules differ."""

EXACT = 0.05
"""How far two servers of the same traits may differ, in logits: counts themselves are exact."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """Per server: level and coverage in logits, each with its standard deviation."""

    curve: Curve
    levels: Array
    level_sds: Array
    coverages: Array
    coverage_sds: Array

    def counts(self, designs: Designs, *, level: float = 0.0, coverage: float = 0.0) -> Array:
        """Steps, drafts, verified tokens and draft passes per token, so many standard deviations
        away from what is expected."""
        levels = self.levels + level * self.level_sds
        shares = share_of(self.coverages + coverage * self.coverage_sds)
        accepted = self.curve.accepted(levels, designs.depth)
        drafts = shares / (1.0 + accepted)
        steps = 1.0 - shares + drafts
        return np.stack([steps, drafts, drafts * designs.nodes, drafts * designs.passes], axis=1)


def counted_per_token(designs: Designs, launches: Sequence[Observation]) -> dict[int, Array]:
    """Steps, drafts, verified tokens and draft passes per token of every counted server."""
    found = {}
    for launch in launches:
        total, server = launch.totals, launch.server
        drafts = total[DRAFTED] / max(designs.nodes[server], 1.0)
        counts = [total[STEPS], drafts, total[DRAFTED], drafts * designs.passes[server]]
        found[server] = np.array(counts) / total[TOKENS]
    return found


@dataclass(frozen=True, slots=True)
class Played:
    """Level and coverage that a known text gives each server, in logits; NaN where unknown."""

    levels: Array
    coverages: Array


def fit_drafting(
    designs: Designs, launches: Sequence[Observation], played: Played | None = None
) -> Drafting:
    """Learn level and coverage from counted launches of speculative servers.

    `played` is what the servers would count on a known text: believed as far as the launches
    agree with it.
    """
    drafting = [each for each in launches if each.totals[DRAFTED] > 0]
    curve = curve_from(_deepest(drafting))
    lift = BRANCH_LIFT * np.log2(np.maximum(designs.branch, 1.0))
    servers = np.array([each.server for each in drafting], dtype=int)
    if not len(servers):
        return _unseen(curve, lift, played)
    totals = np.array([each.totals for each in drafting])
    drafts = totals[:, DRAFTED] / np.maximum(designs.nodes[servers], 1.0)
    accepted = totals[:, ACCEPTED] / drafts
    seen = curve.levels(accepted, designs.depth[servers]) - lift[servers]
    # Few drafts tell little: the counts are exact, but of a short text.
    noise = EXACT + 1.0 / np.sqrt(totals[:, DRAFTED] + 1.0)
    expected = played or Played(np.full(designs.count, np.nan), np.full(designs.count, np.nan))
    levels, level_sds = _spread(designs, servers, seen, noise, (LEVEL_PRIOR, expected.levels))
    covered = logit((drafts + totals[:, ACCEPTED]) / totals[:, TOKENS])
    coverages, coverage_sds = _spread(
        designs, servers, covered, noise, (COVERAGE_PRIOR, expected.coverages)
    )
    return Drafting(curve, levels + lift, level_sds, coverages, coverage_sds)


def _deepest(launches: Sequence[Observation]) -> Sequence[float]:
    known = [each.per_position for each in launches if each.per_position]
    return max(known, key=len, default=())


def _unseen(curve: Curve, lift: Array, played: Played | None) -> Drafting:
    """Before any launch that drafted: what is typical, or what the text gives."""
    flat = np.zeros(len(lift))
    if played is None:
        return Drafting(curve, flat + lift, flat + 1.5, flat, flat + 1.5)
    known = np.isfinite(played.levels)
    return Drafting(
        curve,
        np.where(known, played.levels, lift),
        np.where(known, UNCHECKED, 1.5),
        np.where(known, played.coverages, 0.0),
        np.where(known, UNCHECKED, 1.5),
    )


def _spread(
    designs: Designs,
    servers: Array,
    values: Array,
    noise: Array,
    prior: tuple[Prior, Array],
) -> tuple[Array, Array]:
    """Values of all servers from those of some, around what a known text gives if it agrees."""
    believed, expected = prior
    offsets = np.zeros(designs.count)
    if agrees(values, expected[servers]):
        offsets = np.where(np.isfinite(expected), expected, np.nanmean(expected))
        believed = replace(believed, scale=UNCHECKED, mean=None)
    process = fit_process(designs.traits[servers], values - offsets[servers], noise, believed)
    means, sds = process.predict(designs.traits)
    return means + offsets, sds


def agrees(values: Array, expected: Array) -> bool:
    """True when what was computed is nearer to what was counted than their mean is.

    One launch cannot tell; from two on the computed values must explain most of the spread.
    """
    if not np.isfinite(expected).all():
        return False
    if len(values) < 2:
        return True
    errors = values - expected
    spread = values - np.mean(values)
    return bool(np.sum((errors - np.mean(errors)) ** 2) <= 0.5 * np.sum(spread**2) + 1e-9)


def silent_chances(designs: Designs, counted: Mapping[int, bool]) -> Array:
    """Chance that each server drafts nothing at all, from rules and from servers near it.

    `counted` says whether each launched server drafted nothing.
    """
    chances = np.where(designs.silent > 0, 0.95, 0.02)
    servers = np.array(list(counted), dtype=int)
    if len(servers):
        is_silent = np.array([counted[server] for server in servers], dtype=float)
        gaps = designs.traits[:, None, :] - designs.traits[None, servers, :]
        near = np.exp(-12.0 * (gaps**2).sum(axis=2))
        chances = (chances + near @ is_silent) / (1.0 + near.sum(axis=1))
        chances[servers] = is_silent
    return chances
