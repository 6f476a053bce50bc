"""Owns what every server would count per token: measured where it was launched, predicted from
the acceptance of the others where it was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.model.acceptance import Curve, curve_from, logit, share_of
from tuner.model.gaussian import Array, Prior, fit_process
from tuner.model.observation import ACCEPTED, DRAFTED, STEPS, TOKENS, Designs, Observation

BRANCH_LIFT = 0.5
"""Prior gain in logits per doubling of alternatives: what trees in the literature show."""

LEVEL_PRIOR = Prior(scale=0.7)
COVERAGE_PRIOR = Prior(scale=1.0)
UNCHECKED = 0.35
"""How far a computed value may be from the counted one, in logits: tokens and rules differ."""

SILENT_ON_TEXT = 0.6
"""Chance that a server drafts nothing which drafted nothing on a known text."""

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
    """Steps, drafts, verified tokens and draft passes per token of every counted server, over
    all its launches: other prompts count a little differently."""
    sums: dict[int, Array] = {}
    for launch in launches:
        sums[launch.server] = sums.get(launch.server, np.zeros(6)) + launch.totals
    found = {}
    for server, total in sums.items():
        drafts = total[DRAFTED] / max(designs.nodes[server], 1.0)
        counts = [total[STEPS], drafts, total[DRAFTED], drafts * designs.passes[server]]
        found[server] = np.array(counts) / total[TOKENS]
    return found


@dataclass(frozen=True, slots=True)
class Played:
    """What a known text gives each server; NaN where unknown.

    Args:
        accepted: tokens per full draft.
        coverages: share of tokens that a drafting step produces, in logits.
        silent: servers that draft nothing on that text.
        methods: number of each server's method; what is computed for one is believed or not as a
            whole.
    """

    accepted: Array
    coverages: Array
    silent: NDArray[np.bool_]
    methods: NDArray[np.intp]


def fit_drafting(
    designs: Designs, launches: Sequence[Observation], played: Played | None = None
) -> Drafting:
    """Learn level and coverage from counted launches of speculative servers.

    `played` is what the servers would count on a known text: believed for every method whose
    launches agree with it, learned for the others.
    """
    drafting = [each for each in launches if each.totals[DRAFTED] > 0]
    curve = curve_from(_deepest(drafting))
    lift = BRANCH_LIFT * np.log2(np.maximum(designs.branch, 1.0))
    servers = np.array([each.server for each in drafting], dtype=int)
    if not len(servers):
        return _unseen(curve, lift, designs, played)
    totals = np.array([each.totals for each in drafting])
    drafts = totals[:, DRAFTED] / np.maximum(designs.nodes[servers], 1.0)
    accepted = totals[:, ACCEPTED] / drafts
    seen = curve.levels(accepted, designs.depth[servers]) - lift[servers]
    # Few drafts tell little: the counts are exact, but of a short text.
    noise = EXACT + 1.0 / np.sqrt(totals[:, DRAFTED] + 1.0)
    levels, level_sds = _spread(designs, servers, seen, noise, LEVEL_PRIOR)
    covered = logit((drafts + totals[:, ACCEPTED]) / totals[:, TOKENS])
    coverages, coverage_sds = _spread(designs, servers, covered, noise, COVERAGE_PRIOR)
    if played is None:
        return Drafting(curve, levels + lift, level_sds, coverages, coverage_sds)
    around = designs, servers, noise
    told = _told(curve, designs, played) - lift
    levels, level_sds = _around(around, played.methods, (seen, told), (levels, level_sds))
    coverages, coverage_sds = _around(
        around, played.methods, (covered, played.coverages), (coverages, coverage_sds)
    )
    return Drafting(curve, levels + lift, level_sds, coverages, coverage_sds)


def _told(curve: Curve, designs: Designs, played: Played) -> Array:
    """Levels that a known text gives; NaN where unknown."""
    levels = curve.levels(np.nan_to_num(played.accepted), np.maximum(designs.depth, 1.0))
    known: Array = np.where(np.isfinite(played.accepted), levels, np.nan)
    return known


def _deepest(launches: Sequence[Observation]) -> Sequence[float]:
    known = [each.per_position for each in launches if each.per_position]
    return max(known, key=len, default=())


def _unseen(curve: Curve, lift: Array, designs: Designs, played: Played | None) -> Drafting:
    """Before any launch that drafted: what is typical, or what the text gives."""
    flat = np.zeros(len(lift))
    if played is None:
        return Drafting(curve, flat + lift, flat + 1.5, flat, flat + 1.5)
    known = np.isfinite(played.accepted)
    return Drafting(
        curve,
        np.where(known, _told(curve, designs, played), lift),
        np.where(known, UNCHECKED, 1.5),
        np.where(known, played.coverages, 0.0),
        np.where(known, UNCHECKED, 1.5),
    )


def _spread(
    designs: Designs, servers: Array, values: Array, noise: Array, prior: Prior
) -> tuple[Array, Array]:
    """Values of all servers from those of some."""
    return fit_process(designs.traits[servers], values, noise, prior).predict(designs.traits)


def _around(
    launched: tuple[Designs, Array, Array],
    methods: NDArray[np.intp],
    pair: tuple[Array, Array],
    learned: tuple[Array, Array],
) -> tuple[Array, Array]:
    """Values of all servers around what a known text gives, where the launches agree with that,
    and as `learned` where they do not.

    Args:
        launched: all servers, those that were launched, and the noise of their values.
        methods: number of each server's method.
        pair: values of the launched servers, and computed ones of all.
        learned: means and standard deviations without the text.
    """
    designs, servers, noise = launched
    values, computed = pair
    believed = trusted(methods, servers, values, computed)
    told = believed[servers]
    offsets, sds = np.zeros(designs.count), np.full(designs.count, UNCHECKED)
    if told.any():
        off = values[told] - computed[servers[told]]
        prior = Prior(scale=UNCHECKED)
        offsets, sds = _spread(designs, servers[told], off, noise[told], prior)
    means = np.where(believed, offsets + np.nan_to_num(computed), learned[0])
    return means, np.where(believed, sds, learned[1])


def trusted(
    methods: NDArray[np.intp], servers: Array, values: Array, computed: Array
) -> NDArray[np.bool_]:
    """For which servers the computed value is believed: it is known, and the launches of its
    method agree with what was computed for them."""
    believed: NDArray[np.bool_] = np.isfinite(computed)
    for method in set(methods[servers].tolist()):
        own = methods[servers] == method
        known = own & np.isfinite(computed[servers])
        # What was said to draft nothing and did draft counts against the method.
        is_guess = known.sum() < 0.5 * own.sum()
        if is_guess or not agrees(values[known], computed[servers[known]]):
            believed &= methods != method
    return believed


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


def silent_chances(
    designs: Designs, counted: Mapping[int, bool], played: Played | None = None
) -> Array:
    """Chance that each server drafts nothing at all, from rules, from a known text and from
    servers near it.

    `counted` says whether each launched server drafted nothing.
    """
    chances = np.where(designs.silent > 0, 0.95, 0.02)
    if played is not None:
        chances = np.where(played.silent & (designs.silent == 0), SILENT_ON_TEXT, chances)
    servers = np.array(list(counted), dtype=int)
    if len(servers):
        is_silent = np.array([counted[server] for server in servers], dtype=float)
        gaps = designs.traits[:, None, :] - designs.traits[None, servers, :]
        near = np.exp(-12.0 * (gaps**2).sum(axis=2))
        chances = (chances + near @ is_silent) / (1.0 + near.sum(axis=1))
        chances[servers] = is_silent
    return chances
