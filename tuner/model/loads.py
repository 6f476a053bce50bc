"""Owns speed at several loads: one acceptance and one clock for all of them.

What is accepted hardly depends on how many requests run at once, so counters of every load count
for all. An iteration of the engine serves one step of each running request:

    seconds of an iteration = base + per draft + per draft pass
                            + requests at once x (per request's step + per verified token)

The coefficients are shared by all loads: two loads tell the third. What they do not explain is
learned over servers and loads together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tuner.model.clock import Clock, ClockPrior, fit_clock
from tuner.model.drafting import Drafting, Played, counted_per_token, fit_drafting
from tuner.model.gaussian import Array, Prior, Process, fit_process
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
from tuner.model.speculation import MISFIT

MANY_LOADS = ClockPrior(
    np.array([0.3, 0.9, 0.1, 0.2, 0.1, 0.08]), np.array([2.0, 0.5, 0.3, 0.4, 0.25, 0.15])
)
"""Columns: request, iteration, step of one request, draft, verified token, draft pass; in times of
an iteration without speculation at the lowest load."""

RESIDUAL = Prior(mean=0.0, scale=0.05, factors=(0.3, 0.6, 1.0, 2.0, 4.0), noises=(0.5, 1.0, 2.0))
WIDEST = 1024.0
"""Requests at once that count as 1 on the residual's axis of loads."""


@dataclass(frozen=True, slots=True)
class LoadedLaunch:
    """One launch at every load it was measured at.

    Args:
        server: row in the designs, or BASELINE.
        blocks: by requests at once; columns as those of an `Observation`.
        per_position: share of drafts that accepted position 1, 2, …; () unknown.
    """

    server: int
    blocks: Mapping[float, Array]
    per_position: tuple[float, ...] = ()

    def at(self, load: float) -> Observation:
        """What was seen at one load; a baseline drafts nothing."""
        seen = Observation(self.server, blocks=self.blocks[load])
        return with_baseline_counts(seen) if self.server == BASELINE else seen

    def whole(self) -> Observation:
        """What was seen at all loads together: for counts, not for clocks."""
        blocks = np.concatenate(list(self.blocks.values()))
        return Observation(self.server, blocks=blocks, per_position=self.per_position)


@dataclass(frozen=True, slots=True)
class SharedLoads:
    """Fitted to launches at any loads; predicts every server at every load.

    `alike`: blocks of one launch are fast or slow together, so the clock knows by this factor less
    than their number says. `strange`: by how much launches at each load differ from the clock, in
    logs: where costs are not proportional (verification is free until it fills the arithmetic) the
    prediction says how little it knows.
    """

    designs: Designs
    drafting: Drafting
    known: Mapping[int, Array]
    clock: Clock
    residual: Process | None
    requests: float
    alike: float
    strange: Mapping[float, float]

    @classmethod
    def fit(
        cls,
        designs: Designs,
        launches: Sequence[LoadedLaunch],
        noise: float,
        played: Played | None = None,
    ) -> SharedLoads | None:
        """Fit to launches; None without a baseline whose counters are known.

        Args:
            designs: every server.
            launches: the baseline's among them; loads may differ from launch to launch.
            noise: by how much one launch differs from another, in logs.
            played: what lookups would count on the baseline's answers, where that is known.
        """
        seen = [(load, each.at(load)) for each in launches for load in each.blocks]
        seen = [(load, each) for load, each in seen if each.is_counted]
        idle = [(load, each) for load, each in seen if each.server == BASELINE]
        if not idle:
            return None
        lowest = min(load for load, _ in idle)
        base = np.concatenate([each.blocks for load, each in idle if load == lowest])
        step_s = float(np.median(base[:, SECONDS] / base[:, TOKENS])) * lowest
        features = [_features(designs, each, load) for load, each in seen]
        seconds = [each.blocks[:, SECONDS] for _, each in seen]
        clock = fit_clock(np.concatenate(features), np.concatenate(seconds), step_s, MANY_LOADS)
        off = [
            float(np.median(np.log(clock.time(counts)) - np.log(own)))
            for counts, own in zip(features, seconds, strict=True)
        ]
        relative = _relative(seen, off, noise)
        whole = [each.whole() for each in launches if each.server != BASELINE]
        counted = [each for each in whole if each.is_counted]
        totals = sum((each.totals for _, each in seen), np.zeros(6))
        return cls(
            designs,
            fit_drafting(designs, counted, played),
            counted_per_token(designs, counted),
            clock,
            _residual(designs, relative),
            float(totals[REQUESTS] / totals[TOKENS]),
            _alike(launches, noise / clock.spread),
            _strangeness(relative),
        )

    def predict(self, load: float) -> tuple[Array, Array]:
        """Log speed ratio of every server to the baseline at so many requests at once, and its
        standard deviation; the load need not have been measured."""
        expected = self.drafting.counts(self.designs)
        means = self._log_speed(expected, load)
        variances = np.zeros(len(means))
        for name in ("level", "coverage"):
            moved = self.drafting.counts(self.designs, **{name: 1.0})
            variances += (self._log_speed(moved, load) - means) ** 2
        for server, exact in self.known.items():
            expected[server] = exact
            variances[server] = 0.0
        means = self._log_speed(expected, load)
        variances += self.alike * self.clock.relative_sd(self._wide(expected, load)) ** 2
        sds = np.hypot(np.sqrt(variances), max(MISFIT, self._strange_at(load)))
        if self.residual is None:
            return means, np.hypot(sds, RESIDUAL.scale)
        more, more_sds = self.residual.predict(_with_load(self.designs.rows, load))
        return means + more, np.hypot(sds, more_sds)

    def _strange_at(self, load: float) -> float:
        """Between measured loads by their logarithm."""
        known = sorted(self.strange)
        if not known:
            return 0.0
        places = [math.log(each) for each in known]
        return float(np.interp(math.log(load), places, [self.strange[each] for each in known]))

    def _log_speed(self, counts: Array, load: float) -> Array:
        idle = self._wide(np.array([[1.0, 0.0, 0.0, 0.0]]), load)
        gains: Array = np.log(self.clock.time(idle)) - np.log(
            self.clock.time(self._wide(counts, load))
        )
        return gains

    def _wide(self, counts: Array, load: float) -> Array:
        """Steps, drafts, verified tokens and passes per token as the clock takes them."""
        steps, drafts, verified, passes = counts.T
        return _columns(
            np.full(len(counts), self.requests), (steps, drafts, verified, passes), load
        )


def _alike(launches: Sequence[LoadedLaunch], share: float) -> float:
    """Blocks of a launch per independent one, where its noise is that share of a block's."""
    blocks = [sum(len(table) for table in each.blocks.values()) for each in launches]
    return 1.0 + (float(np.mean(blocks)) - 1.0) * min(1.0, share) ** 2


def _columns(requests: Array, counts: tuple[Array, Array, Array, Array], load: float) -> Array:
    steps, drafts, verified, passes = counts
    each = [requests, steps / load, steps, drafts / load, verified, passes / load]
    columns: Array = np.stack(each, axis=1)
    return columns


def _features(designs: Designs, seen: Observation, load: float) -> Array:
    """Counts of every block, as the clock takes them."""
    blocks, verified = seen.blocks, seen.blocks[:, DRAFTED]
    drafts = passes = np.zeros(len(blocks))
    if seen.server != BASELINE:
        drafts = verified / max(designs.nodes[seen.server], 1.0)
        passes = drafts * designs.passes[seen.server]
    return _columns(blocks[:, REQUESTS], (blocks[:, STEPS], drafts, verified, passes), load)


Relative: TypeAlias = list[tuple[int, float, float, float]]
"""Server, load, by how much it was faster than its clock, and the noise of that."""


def _relative(
    seen: Sequence[tuple[float, Observation]], off: Sequence[float], noise: float
) -> Relative:
    """What each launch was faster than its clock, relative to the baseline at the same load."""
    idle: dict[float, list[float]] = {}
    for (load, each), value in zip(seen, off, strict=True):
        if each.server == BASELINE:
            idle.setdefault(load, []).append(value)
    return [
        (each.server, load, value - float(np.mean(idle[load])),
         noise * math.sqrt(1.0 + 1.0 / len(idle[load])))
        for (load, each), value in zip(seen, off, strict=True)
        if each.server != BASELINE and load in idle
    ]  # fmt: skip


def _residual(designs: Designs, relative: Relative) -> Process | None:
    """Learned over servers and loads."""
    if not relative:
        return None
    servers, loads, values, noises = zip(*relative, strict=True)
    points = np.concatenate(
        [_with_load(designs.rows[[s]], load) for s, load in zip(servers, loads, strict=True)]
    )
    return fit_process(points, np.array(values), np.array(noises), RESIDUAL)


def _strangeness(relative: Relative) -> dict[float, float]:
    """By load, what of the differences is more than noise."""
    squares: dict[float, list[float]] = {}
    for _, load, value, noise in relative:
        squares.setdefault(load, []).append(value**2 - noise**2)
    return {load: math.sqrt(max(0.0, float(np.mean(own)))) for load, own in squares.items()}


def _with_load(rows: Array, load: float) -> Array:
    place = math.log2(max(load, 1.0)) / math.log2(WIDEST)
    return np.column_stack([rows, np.full(len(rows), place)])
