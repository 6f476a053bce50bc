"""Owns `SpeculationModel`: tokens per second = tokens per step ÷ seconds per step.

Counters are exact and clocks are noisy. So acceptance is learned from counters, the clock from
the blocks of all launches together, and a server is judged by its counters on that clock. What
this does not explain is learned by a process on the residual, which weighs as much as it must.
With wall-clock numbers only, that process is all there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.model.clock import Clock, fit_clock
from tuner.model.drafting import Played, counted_per_token, fit_drafting, silent_chances
from tuner.model.gaussian import Array, Prior, fit_process
from tuner.model.observation import (
    BASELINE,
    DRAFTED,
    REQUESTS,
    SECONDS,
    STEPS,
    TOKENS,
    Designs,
    Observation,
    with_baseline_counts,
)

PLAIN_PRIOR = Prior(mean=0.0, scale=0.2, noises=(0.7, 1.0, 2.0))
RESIDUAL_PRIOR = Prior(
    mean=0.0, scale=0.05, factors=(0.3, 0.6, 1.0, 2.0, 4.0), noises=(0.5, 1.0, 2.0, 3.0)
)
EFFECT_SCALE = 0.12
"""Scale of the residual where variables that the clock does not know are searched too."""

MISFIT = 0.01
"""By how much any server may differ from all that is modelled, in logs."""

CLOCK_FREEDOM = 3.0
"""Launches that the clock's own fit is worth: what it took from their scatter."""

ROUNDS = 3
"""How often clock and residual are fitted in turn."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Log speed ratio to the baseline of every server, with its standard deviation.

    `counts` (steps, drafts, verified tokens, draft passes per token) is None without counters.
    `scatter`: squares of what single launches differ from the model, and their freedom.
    `skewness`: of blocks about their launch, in log seconds; above 0 disturbance mostly slows.
    """

    means: Array
    sds: Array
    counts: Array | None = None
    clock: Clock | None = None
    scatter: tuple[float, float] = (0.0, 0.0)
    skewness: float = 0.0


@dataclass(frozen=True, slots=True)
class Residual:
    """Log speed of every server that its clock does not explain; see `Prediction`."""

    means: Array
    sds: Array
    scatter: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class SpeculationModel:
    """Fitted to the launches so far; predicts every server of the designs."""

    prediction: Prediction

    @classmethod
    def fit(
        cls,
        designs: Designs,
        observations: Sequence[Observation],
        noise: float,
        played: Played | None = None,
    ) -> SpeculationModel:
        """Fit to launches.

        Args:
            designs: every server.
            observations: the launches, the baseline's among them.
            noise: by how much one launch differs from another, in logs.
            played: what lookups would count on the baseline's answers, where that is known.
        """
        baselines = [with_baseline_counts(o) for o in observations if o.server == BASELINE]
        launches = [o for o in observations if o.server != BASELINE]
        counted = [o for o in launches if o.is_counted]
        baselines = [o for o in baselines if o.is_counted]
        if not baselines or not (counted or (played is not None and not launches)):
            return cls(_plain(designs, launches, noise))
        return cls(_mechanistic(designs, [*baselines, *counted], noise, played))

    def predict(self, servers: Sequence[int]) -> tuple[Array, Array]:
        """Mean log speed ratio and standard deviation of some servers."""
        chosen = np.asarray(servers, dtype=int)
        return self.prediction.means[chosen], self.prediction.sds[chosen]


def _plain(designs: Designs, launches: Sequence[Observation], noise: float) -> Prediction:
    """Interpolated wall-clock ratios."""
    known = [each for each in launches if np.isfinite(each.gain)]
    if not known:
        flat = np.zeros(designs.count)
        return Prediction(flat, flat + PLAIN_PRIOR.scale)
    servers = [each.server for each in known]
    gains = np.array([each.gain for each in known])
    noises = np.full(len(gains), noise)
    process = fit_process(designs.rows[servers], gains, noises, PLAIN_PRIOR)
    squares, freedom = process.scatter(gains)
    scatter = squares, max(0.0, freedom - 1.0)
    return Prediction(*process.predict(designs.rows), scatter=scatter)


def _mechanistic(
    designs: Designs,
    timed: Sequence[Observation],
    noise: float,
    played: Played | None,
) -> Prediction:
    counted = [each for each in timed if each.server != BASELINE and each.tells_acceptance]
    timed = [each for each in timed if each.tells_costs]
    clock, residual = _clock_and_residual(designs, timed, noise)
    requests = _requests_per_token(timed)
    known = counted_per_token(designs, counted)
    drafting = fit_drafting(designs, counted, played)
    idle = np.array([[requests, 1.0, 0.0, 0.0, 0.0]])

    def log_speed(counts: Array) -> Array:
        full = np.column_stack([np.full(len(counts), requests), counts])
        gains: Array = np.log(clock.time(idle)) - np.log(clock.time(full))
        return gains

    counts = drafting.counts(designs)
    deviations = [
        log_speed(drafting.counts(designs, **{name: 1.0})) - log_speed(counts)
        for name in ("level", "coverage")
    ]
    for server, exact in known.items():
        counts[server] = exact
    launched = np.array(list(known), dtype=int)
    variances = sum(deviation**2 for deviation in deviations)
    assert not isinstance(variances, int)
    variances[launched] = 0.0
    means = log_speed(counts)
    full = np.column_stack([np.full(designs.count, requests), counts])
    variances = variances + clock.relative_sd(full) ** 2 * 0.5
    is_silent = {each.server: bool(each.totals[DRAFTED] == 0) for each in counted}
    chances = silent_chances(designs, is_silent, played)
    means, variances = (
        (1 - chances) * means,
        (1 - chances) * variances + chances * (1 - chances) * means**2,
    )
    sds = np.sqrt(variances + residual.sds**2)
    skewness = _skewness(designs, timed, clock)
    return Prediction(means + residual.means, sds, counts, clock, residual.scatter, skewness)


def _skewness(designs: Designs, timed: Sequence[Observation], clock: Clock) -> float:
    """Skewness of what blocks took longer than their launch, by the clock, did in the median."""
    found = []
    for each in timed:
        excess = np.log(each.blocks[:, SECONDS] / clock.time(_features(designs, each)))
        found.append(excess - np.median(excess))
    left = np.concatenate(found)
    left = left - left.mean()
    spread = float(np.mean(left**2))
    return float(np.mean(left**3) / spread**1.5) if spread > 0 else 0.0


def _features(designs: Designs, each: Observation) -> Array:
    """Counts of every block of a launch, as the clock takes them."""
    blocks = each.blocks
    verified = blocks[:, DRAFTED]
    drafts = passes = np.zeros(len(blocks))
    if each.server != BASELINE:
        drafts = verified / max(designs.nodes[each.server], 1.0)
        passes = drafts * designs.passes[each.server]
    return np.stack([blocks[:, REQUESTS], blocks[:, STEPS], drafts, verified, passes], axis=1)


def _clock_and_residual(
    designs: Designs, timed: Sequence[Observation], noise: float
) -> tuple[Clock, Residual]:
    """The clock, and the log speed of every server that it does not explain; fitted in turn, so
    that a variable that slows every pass is not taken for the cost of a count."""
    base = np.concatenate([each.blocks for each in timed if each.server == BASELINE])
    step_s = float(np.median(base[:, SECONDS] / base[:, TOKENS]))
    features = [_features(designs, each) for each in timed]
    seconds = [each.blocks[:, SECONDS] for each in timed]
    effects = np.zeros(designs.count)
    for _ in range(ROUNDS):
        cleared = [
            own * math.exp(effects[each.server] if each.server != BASELINE else 0.0)
            for own, each in zip(seconds, timed, strict=True)
        ]
        clock = fit_clock(np.concatenate(features), np.concatenate(cleared), step_s)
        logs = [
            float(np.median(np.log(clock.time(counts)) - np.log(own)))
            for counts, own in zip(features, seconds, strict=True)
        ]
        residual = _residuals(designs, timed, logs, clock.spread, noise)
        effects = residual.means
    return clock, residual


def _requests_per_token(timed: Sequence[Observation]) -> float:
    totals = sum(each.totals for each in timed)
    assert not isinstance(totals, int)
    return float(totals[REQUESTS] / totals[TOKENS])


def _residuals(
    designs: Designs,
    timed: Sequence[Observation],
    logs: Sequence[float],
    spread: float,
    noise: float,
) -> Residual:
    """A process over what each launch was faster than its clock."""
    known = [
        (each.server, log, math.hypot(noise, spread / math.sqrt(len(each.blocks))))
        for each, log in zip(timed, logs, strict=True)
        if each.server != BASELINE
    ]
    if not known:
        return Residual(np.zeros(designs.count), np.full(designs.count, RESIDUAL_PRIOR.scale))
    servers, values, noises = zip(*known, strict=True)
    has_effects = designs.rows.shape[1] > designs.traits.shape[1]
    scale = EFFECT_SCALE if has_effects else RESIDUAL_PRIOR.scale
    prior = replace(RESIDUAL_PRIOR, scale=scale)
    process = fit_process(designs.rows[list(servers)], np.array(values), np.array(noises), prior)
    means, sds = process.predict(designs.rows)
    squares, freedom = process.scatter(np.array(values))
    scatter = squares, max(0.0, freedom - CLOCK_FREEDOM)
    return Residual(means, np.hypot(sds, MISFIT), scatter)
