"""Owns the choice that knows speculation: the server with the most expected improvement per
expected second, and the moment when no server is worth a launch any more."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner import units
from tuner.model.gaussian import Array, expected_excess, fit_process
from tuner.search.sampling import Ground, Proposal, Situation
from tuner.search.servers import Encoding, depth_of
from tuner.search.strategies import Coordinates, farthest
from tuner.search.telling import is_config_fault
from tuner.store.record import TrialRecord

NOISE = 0.03
"""Launch noise in log units that is assumed until the baseline was launched again."""

SLACK = 0.01
"""A gain below this is not worth a launch, whatever the noise."""

LEAST_SCALE = 0.1
"""Servers are never believed to be more alike than this, in log units."""

CERTAIN = 0.05
"""The search ends when the best remaining server promises this share of the least gain."""

LEAST_LAUNCHES = 8
"""Nothing is certain before so many servers were measured."""


def make_model_suggester(ground: Ground) -> ModelSuggester:
    """The suggester behind `search.sampler: model`."""
    return ModelSuggester(ground)


@dataclass(slots=True)
class Belief:
    """What is expected of every server: log ratio to the baseline, its uncertainty, seconds."""

    means: Array
    sds: Array
    seconds: Array
    works: Array
    best: float
    noise: float


@dataclass(slots=True)
class ModelSuggester:
    """Proposes by expected improvement; `why` says what ended the search when it proposes
    nothing."""

    ground: Ground
    why: str = ""
    _encoding: Encoding = field(init=False)
    _digests: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._encoding = Encoding.of(self.ground)
        self._digests = {
            args.digest: index for index, (_, args) in enumerate(self.ground.survey.servers)
        }

    def propose(self, situation: Situation) -> Proposal | None:
        """One of `situation.remaining`; None when none is worth a launch."""
        seen = self._seen(situation)
        if len(seen) + len(situation.running) < self.ground.config.startup_trials:
            return self._spread(situation, [index for index, _ in seen])
        if self._is_exhaustive():
            return self._spread(situation, [index for index, _ in seen])
        belief = self._belief(situation, seen)
        gains = expected_gains(belief, situation.remaining)
        measured = [index for index, record in seen if gain_of(record) is not None]
        if len(measured) >= LEAST_LAUNCHES and self._is_done(belief, gains, situation):
            return None
        chosen = situation.remaining[int(np.argmax(gains / belief.seconds[situation.remaining]))]
        return Proposal(chosen, math.exp(float(belief.means[chosen])))

    def _is_exhaustive(self) -> bool:
        return len(self.ground.survey.servers) + 1 <= self.ground.launches

    def _seen(self, situation: Situation) -> list[tuple[int, TrialRecord]]:
        """Launched servers of this space, those that failed by their own fault among them."""
        return [
            (self._digests[record.digest], record)
            for record in situation.records
            if record.digest in self._digests and (gain_of(record) or is_config_fault(record))
        ]

    def _spread(self, situation: Situation, seen: Sequence[int]) -> Proposal:
        """The deepest chain first, then the server that differs most from all before it."""
        servers = self.ground.survey.servers
        if not seen and not situation.running:
            return Proposal(max(situation.remaining, key=lambda i: depth_of(servers[i])))
        known = Coordinates(self.ground)
        done = [known.of(index) for index in [*seen, *situation.running]]
        return Proposal(farthest(known, situation, done))

    def _belief(self, situation: Situation, seen: list[tuple[int, TrialRecord]]) -> Belief:
        noise = launch_noise(situation.records)
        rows = self._encoding.rows
        launched = [(index, gain) for index, r in seen if (gain := gain_of(r)) is not None]
        if not launched:
            flat = np.zeros(len(rows))
            return Belief(flat, flat + 0.3, flat + 1.0, flat + 1.0, 0.0, noise)
        indices = [index for index, _ in launched]
        gains = np.array([gain for _, gain in launched])
        process = fit_process(
            rows[indices], gains, np.full(len(gains), noise), least_scale=LEAST_SCALE
        )
        means, sds = process.predict(rows)
        works = working_chances(rows, seen)
        seconds = expected_seconds(rows, situation.records, means)
        best = max(0.0, float(np.max(means[indices])))
        return Belief(means, sds, seconds, works, best, noise)

    def _is_done(self, belief: Belief, gains: Array, situation: Situation) -> bool:
        least = max(SLACK, belief.noise)
        top = int(np.argmax(gains))
        if gains[top] > CERTAIN * least:
            return False
        index = situation.remaining[top]
        self.why = (
            f"no remaining server can be expected to beat the best by more than "
            f"{units.ratio(1 + least)}: the most promising of {len(situation.remaining)} is "
            f"predicted at {math.exp(float(belief.means[index])):.2f}x baseline, "
            f"the best is at {math.exp(belief.best):.2f}x"
        )
        return True


def gain_of(record: TrialRecord) -> float | None:
    """Log ratio to the baseline; None where nothing was measured."""
    ratio = record.vs_baseline
    if record.state not in ("complete", "pruned") or not ratio or ratio <= 0:
        return None
    return math.log(ratio)


def launch_noise(records: Sequence[TrialRecord]) -> float:
    """Launch noise in log units, from the baseline's repeats where there are some."""
    gains = [
        math.log(record.vs_baseline)
        for record in records
        if record.state == "baseline" and record.vs_baseline
    ]
    if len(gains) < 3:
        return NOISE
    return max(0.005, statistics.stdev(gains))


def expected_gains(belief: Belief, remaining: Sequence[int]) -> Array:
    """Expected improvement of each remaining server over the best, in log units."""
    means, sds = belief.means[remaining], belief.sds[remaining]
    gains: Array = expected_excess(means - belief.best, sds) * belief.works[remaining]
    return gains


def working_chances(rows: Array, seen: list[tuple[int, TrialRecord]]) -> Array:
    """Chance that each server runs, from the launches near it that failed by their own fault."""
    failed = [index for index, record in seen if gain_of(record) is None]
    if not failed:
        return np.ones(len(rows))
    ran = [index for index, record in seen if gain_of(record) is not None]
    against = _nearness(rows, rows[failed])
    for_it = _nearness(rows, rows[ran]) if ran else np.zeros(len(rows))
    chances: Array = (for_it + 0.5) / (for_it + against + 0.5)
    return chances


def _nearness(rows: Array, others: Array) -> Array:
    squares = ((rows[:, None, :] - others[None, :, :]) ** 2).sum(axis=2)
    near: Array = np.exp(-8.0 * squares).sum(axis=1)
    return near


def expected_seconds(rows: Array, records: Sequence[TrialRecord], means: Array) -> Array:
    """Seconds a launch of each server takes: what launching took, measuring by its speed."""
    known = [r.seconds for r in records if r.seconds.total > 0 and r.state != "failed"]
    if not known:
        return np.ones(len(rows))
    measuring = statistics.median(s.measure + s.warm_up for s in known)
    other = statistics.median(s.total - s.measure - s.warm_up for s in known)
    seconds: Array = np.maximum(1e-3, other + measuring * np.exp(-np.clip(means, -2.0, 2.0)))
    return seconds
