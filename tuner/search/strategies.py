"""Owns the ways to choose that know nothing of speculation: in order, spread out, at random, and
by one of Optuna's model-based samplers.

Optuna's samplers see a small shadow study in flat coordinates (every parameter, its index), are
asked a bounded number of times, and the answer is the nearest server that may still be launched.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.args import Params
from tuner.search.sampling import Ground, Proposal, Situation
from tuner.search.telling import is_config_fault
from tuner.space import Parameter
from tuner.store.record import TrialRecord

MAX_ASKS = 4
"""How often a surrogate is asked before the nearest launchable server is taken."""

MAX_TOLD = 120
"""How many trials a surrogate learns from at most."""


class Grid:
    """Every server once, in the order of the space."""

    def propose(self, situation: Situation) -> Proposal | None:
        """The first that remains."""
        return Proposal(min(situation.remaining))


class Random:
    """Every remaining server with equal chance."""

    def propose(self, situation: Situation) -> Proposal | None:
        """A seeded draw."""
        return Proposal(random.Random(situation.seed).choice(sorted(situation.remaining)))


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """Every server once, each time the one that differs most from all before it."""

    ground: Ground

    def propose(self, situation: Situation) -> Proposal | None:
        """The remaining server farthest from those launched or running."""
        known = Coordinates(self.ground)
        taken = set(situation.remaining)
        done = [known.of(i) for i in range(len(self.ground.survey.servers)) if i not in taken]
        return Proposal(farthest(known, situation, done))


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Servers as flat coordinates: one per parameter, the position among its values."""

    ground: Ground
    _cache: dict[int, tuple[int | None, ...]] = field(default_factory=dict)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The axes."""
        return self.ground.space.parameters

    def of(self, index: int) -> tuple[int | None, ...]:
        """A server's coordinates; None where a parameter does not exist."""
        if index not in self._cache:
            self._cache[index] = self.at(self.ground.survey.servers[index][0])
        return self._cache[index]

    def at(self, params: Params) -> tuple[int | None, ...]:
        """A point's coordinates; None for what is absent or unknown."""
        return tuple(
            p.values.index(params[p.name]) if params.get(p.name) in p.values else None
            for p in self.parameters
        )

    def distance(self, a: Sequence[int | None], b: Sequence[int | None]) -> float:
        """Sum over axes of the distance, 1 from end to end; an absent value is near to all."""
        return sum(self._axes(a, b))

    def _axes(self, a: Sequence[int | None], b: Sequence[int | None]) -> Iterator[float]:
        for parameter, i, j in zip(self.parameters, a, b, strict=True):
            if i is None or j is None:
                yield 0.0 if i == j else 0.5
            elif is_ordered(parameter):
                yield abs(i - j) / max(1, len(parameter.values) - 1)
            else:
                yield float(i != j)


def is_ordered(parameter: Parameter) -> bool:
    """True when neighbouring values are alike: numbers, and no `unset` among them."""
    return all(
        isinstance(value, int | float) and not isinstance(value, bool)
        for value in parameter.values
    )


def farthest(
    known: Coordinates, situation: Situation, done: Sequence[Sequence[int | None]]
) -> int:
    """The remaining server whose nearest neighbour in `done` is farthest; ties by the seed."""
    shuffled = sorted(situation.remaining)
    random.Random(situation.seed).shuffle(shuffled)
    if not done:
        return shuffled[0]
    return max(
        shuffled,
        key=lambda index: min(known.distance(known.of(index), other) for other in done),
    )


class Surrogate:
    """Optuna's TPE or GP on a shadow study, decoded to the nearest launchable server."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._known = Coordinates(ground)

    def propose(self, situation: Situation) -> Proposal | None:
        """Spread out at the start, then where the surrogate expects the most."""
        measured = [r for r in situation.records if r.params and observation(r) is not None]
        if len(measured) + len(situation.running) < self._ground.config.startup_trials:
            running = [self._known.of(index) for index in situation.running]
            done = [self._known.at(record.params) for record in measured]
            return Proposal(farthest(self._known, situation, [*done, *running]))
        study = self._shadow(situation)
        remaining = {self._known.of(index): index for index in situation.remaining}
        return Proposal(self._nearest(study, remaining))

    def _nearest(self, study: Study, remaining: dict[tuple[int | None, ...], int]) -> int:
        best: tuple[float, int] | None = None
        for _ in range(MAX_ASKS):
            asked = study.ask(self._flat()).params
            point = [asked[parameter.name] for parameter in self._known.parameters]
            exact = remaining.get(self._exact(point))
            if exact is not None:
                return exact
            near = min(
                (self._decoding_distance(point, coordinates), index)
                for coordinates, index in remaining.items()
            )
            best = min(best, near) if best else near
        assert best is not None
        return best[1]

    def _exact(self, asked: Sequence[int]) -> tuple[int | None, ...]:
        """The coordinates of the point asked for, without what does not exist there."""
        named = zip(self._known.parameters, asked, strict=True)
        values = {parameter.name: parameter.values[i] for parameter, i in named}
        return self._known.at(self._ground.space.complete(values))

    def _decoding_distance(
        self, asked: Sequence[int | None], server: Sequence[int | None]
    ) -> float:
        """As `distance`, but a parameter the server does not have matches anything."""
        filled = [a if b is None else b for a, b in zip(asked, server, strict=True)]
        return self._known.distance(asked, filled)

    def _flat(self) -> dict[str, BaseDistribution]:
        return {p.name: _axis(p) for p in self._known.parameters}

    def _shadow(self, situation: Situation) -> Study:
        study = optuna.create_study(direction="maximize", sampler=self._sampler(situation.seed))
        values = [v for r in situation.records if (v := observation(r)) is not None]
        worst = min(values, default=0.0)
        trials = [self._trial(record, worst) for record in told(situation.records)]
        running = [self._running(index) for index in situation.running]
        study.add_trials([*trials, *running])
        return study

    def _sampler(self, seed: int) -> BaseSampler:
        startup = self._ground.config.startup_trials
        if self._ground.config.sampler == "gp":
            return optuna.samplers.GPSampler(seed=seed, n_startup_trials=startup)
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup)

    def _trial(self, record: TrialRecord, worst: float) -> FrozenTrial:
        value = observation(record)
        broken = sum(max(0.0, v) for v in record.constraints.values() if math.isfinite(v))
        failed = value is None
        return create_trial(
            state=TrialState.COMPLETE,
            # What its own fault kept from having a value is worth less than all that have one.
            value=worst - 0.05 if value is None else value,
            params=self._params(self._known.at(record.params)),
            distributions=self._flat(),
            constraints={"outcome": broken, "launch": 1.0 if failed else 0.0},
        )

    def _running(self, index: int) -> FrozenTrial:
        return create_trial(
            state=TrialState.RUNNING,
            params=self._params(self._known.of(index)),
            distributions=self._flat(),
        )

    def _params(self, coordinates: Sequence[int | None]) -> dict[str, int]:
        named = zip(self._known.parameters, coordinates, strict=True)
        return {parameter.name: i or 0 for parameter, i in named}


def _axis(parameter: Parameter) -> BaseDistribution:
    last = len(parameter.values) - 1
    if is_ordered(parameter):
        return IntDistribution(0, last)
    return CategoricalDistribution(tuple(range(last + 1)))


def told(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """What a surrogate learns from: the best and the newest, so that asking stays fast."""
    known = [r for r in records if r.params and r.state != "infeasible"]
    known = [r for r in known if observation(r) is not None or is_config_fault(r)]
    older, newer = known[: -MAX_TOLD // 2], known[-MAX_TOLD // 2 :]
    best = sorted(older, key=lambda r: -(observation(r) or -math.inf))[: MAX_TOLD // 2]
    return [*sorted(best, key=lambda r: r.number), *newer]


def observation(record: TrialRecord) -> float | None:
    """What a surrogate is told: the log of the paired ratio to the baseline; None: no value."""
    ratio = record.vs_baseline
    measured = record.state in ("complete", "pruned", "baseline")
    if not measured or ratio is None or not math.isfinite(ratio) or ratio <= 0:
        return None
    return math.log(ratio)
