"""Owns the choice that knows speculation: the server with the most expected improvement per
expected second, and the moment when no server is worth a launch any more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tuner import units
from tuner.measure.noise import LaunchNoise
from tuner.model.drafting import Played
from tuner.model.gaussian import Array, expected_excess
from tuner.model.observation import BASELINE, Designs, Observation
from tuner.model.speculation import SpeculationModel
from tuner.search.model_chances import (
    allowed_chances,
    expected_seconds,
    launch_noise,
    working_chances,
)
from tuner.search.model_data import (
    broken_servers,
    earlier_observations,
    failed_servers,
    gain_of,
    observations_of,
)
from tuner.search.model_loads import Fleet, speeds_at
from tuner.search.model_lookups import play_lookups
from tuner.search.model_servers import Roles, designs_of
from tuner.search.sampling import Ground, Proposal, Situation
from tuner.search.weighing import Expected
from tuner.store.record import TrialRecord

RANDOM_DRAWS = 200

SLACK = 0.01
"""A gain below this is not worth a launch, whatever the noise."""

SURE = 2.0
"""Standard deviations by which a server must be believed to beat the baseline to be named best."""

CERTAIN = 0.15
"""The search ends when the best remaining server promises less than this share of SLACK."""

LEAST_LAUNCHES = 6
"""Nothing is certain before so many servers were measured, without counters before twice as
many and two more for every column."""

CRASHED = 0.02
"""Chance that a server which crashed by its own fault will run after all."""

MOST_METHODS = 5
"""Of so many methods one server each is launched before the most promising one decides."""

ORDINARY_DEPTH, ORDINARY_MATCH = 10.0, 3.5
"""A lookup that drafts often and not too much: most telling about all others."""


@dataclass(frozen=True, slots=True)
class Belief:
    """What is expected of every server: log ratio to the baseline, its uncertainty, the chance
    that it runs at all, seconds; and the best log ratio among those launched."""

    means: Array
    sds: Array
    works: Array
    seconds: Array
    best: float
    noise: float
    is_counted: bool = False
    floor: float = -math.inf
    scatter: tuple[float, float] = (0.0, 0.0)
    skewness: float = 0.0

    def gains(self, servers: Sequence[int]) -> Array:
        """Expected improvement over the best of each, in log units."""
        chosen = np.asarray(servers, dtype=int)
        excess = expected_excess(self.means[chosen] - self.best, self.sds[chosen])
        gains: Array = excess * self.works[chosen]
        return gains

    def hopeless(self, servers: Sequence[int]) -> NDArray[np.bool_]:
        """Whether even the upper end of what is predicted for each server lies below the lower
        end of the best; never before anything was launched."""
        chosen = np.asarray(servers, dtype=int)
        below: NDArray[np.bool_] = self.means[chosen] + SURE * self.sds[chosen] < self.floor
        return below


@dataclass(slots=True)
class ModelSuggester:
    """Proposes by expected improvement; `why` says what ended the search when it proposes
    nothing, `skipped` counts servers that are not launched because even the upper end of what is
    predicted for them lies below the lower end of the best."""

    ground: Ground
    why: str = ""
    skipped: int = 0
    _played: Played | None = None
    _designs: Designs = field(init=False)
    _roles: list[Roles] = field(init=False)
    _servers: dict[str, int] = field(init=False)
    _earlier: list[Observation] = field(init=False)

    def __post_init__(self) -> None:
        servers = self.ground.survey.servers
        self._designs, self._roles = designs_of(self.ground)
        self._servers = {args.digest: index for index, (_, args) in enumerate(servers)}
        self._earlier = earlier_observations(self._servers, self.ground, self._designs.nodes)

    @property
    def knows_texts(self) -> bool:
        """True once the baseline's answers were taken."""
        return self._played is not None

    @property
    def left_out(self) -> str:
        """How many servers are not launched because they are hopeless, to be put behind why the
        search ended; "" when none is."""
        if not self.skipped:
            return ""
        many = "1 server was" if self.skipped == 1 else f"{self.skipped} servers were"
        return (
            f"; {many} not launched because even the upper end of what is predicted lies below "
            "the lower end of the best"
        )

    def learn_texts(self, texts: Sequence[tuple[list[str], list[str]]]) -> None:
        """Take the baseline's prompts and answers as tokens: lookups are played on them."""
        self._played = play_lookups(self._roles, texts) if texts else None

    def propose(self, situation: Situation) -> Proposal | None:
        """One of `situation.remaining`; None when none is worth a launch."""
        seen = [*self._seen(situation.records), *situation.running]
        first = self._first(situation, seen)
        if first is not None:
            return Proposal(first)
        belief = self.believe(situation.records, situation.running)
        gains = belief.gains(situation.remaining)
        if not self._is_exhaustive() and self._is_done(belief, gains, situation):
            return None
        hopeless = belief.hopeless(situation.remaining)
        self.skipped = int(hopeless.sum())
        per_second = gains / belief.seconds[situation.remaining]
        if not hopeless.all():  # where all are, there is nothing else to launch
            per_second[hopeless] = -1.0
        chosen = situation.remaining[int(np.argmax(per_second))]
        return Proposal(chosen, math.exp(float(belief.means[chosen])))

    def believe(
        self,
        records: Sequence[TrialRecord],
        running: Sequence[int] = (),
        noise: float | None = None,
    ) -> Belief:
        """What the launches so far say of every server; `running` ones are taken as expected.

        `noise` of single launches in log units, where more is known than the records show.
        """
        metric, load = self.ground.metric, self.ground.load
        noise = launch_noise(records, metric, load) if noise is None else noise
        launches = observations_of(records, self._servers, self.ground, self._designs.nodes)
        known = [*self._earlier, *launches]  # a launch of its own replaces an earlier one
        prediction = SpeculationModel.fit(self._designs, known, noise, self._played).prediction
        launched = sorted({each.server for each in launches if each.server != BASELINE})
        means, sds = prediction.means, prediction.sds.copy()
        sds[list(running)] *= 0.3
        broken = broken_servers(records, self._servers)
        tried = [server for server in [*launched, *running] if server not in broken]
        failed = failed_servers([*self._failed_before(), *records], self._servers)
        ran = {each.server for each in self._earlier if each.tells_costs} - {BASELINE}
        works = working_chances(self._designs, sorted(ran.union(launched)), failed)
        works[sorted(set(failed) - ran)] *= CRASHED
        works[sorted(ran)] = 1.0
        return Belief(
            means=means,
            sds=sds,
            works=works * allowed_chances(self._designs.rows, tried, broken),
            seconds=expected_seconds(records, means),
            best=max(0.0, float(np.max(means[tried]))) if tried else 0.0,
            noise=noise,
            is_counted=prediction.counts is not None,
            floor=_floor(means, sds, tried),
            scatter=prediction.scatter,
            skewness=prediction.skewness,
        )

    def beliefs(
        self, records: Sequence[TrialRecord], noise: float | None = None
    ) -> dict[str, Expected]:
        """What is expected of every completely measured server, by digest; see `believe`."""
        belief = self.believe(records, noise=noise)
        measured = {
            self._servers[record.digest]: record.digest
            for record in records
            if record.digest in self._servers
            and record.state == "complete"
            and gain_of(record) is not None
        }
        return {
            digest: Expected(float(belief.means[index]), float(belief.sds[index]))
            for index, digest in measured.items()
        }

    def at_loads(
        self, records: Sequence[TrialRecord], loads: Sequence[float]
    ) -> dict[float, tuple[Array, Array]]:
        """Log ratio to the baseline of every server at so many requests at once, measured or not,
        with its standard deviation; {} without the baseline's counters."""
        noise = launch_noise(records, self.ground.metric, self.ground.load)
        fleet = Fleet(self._servers, self._designs)
        return speeds_at(records, fleet, loads, noise, self._played)

    def noise(self, records: Sequence[TrialRecord]) -> LaunchNoise:
        """By how much launches differ from the model: their noise, and what it does not know."""
        squares, freedom = self.believe(records).scatter
        if freedom < 1.0:
            return LaunchNoise(math.nan, 0)
        return LaunchNoise(math.sqrt(squares / freedom), int(freedom))

    def ranking(self, records: Sequence[TrialRecord]) -> list[str]:
        """Digests of measured servers that are believed to beat the baseline by more than the
        doubt about it, best first."""
        known = self.beliefs(records)
        better = [digest for digest, each in known.items() if each.gain > SURE * each.sd]
        return sorted(better, key=lambda digest: -known[digest].gain)

    def random_search(self, records: Sequence[TrialRecord]) -> float:
        """The ratio to the baseline that as many launches at random are expected to find, by
        what is believed of every server now."""
        belief = self.believe(records)
        launches = sum(r.digest in self._servers and r.state != "reused" for r in records)
        gains = np.where(belief.works > 0.5, belief.means, -np.inf)
        draw = np.random.default_rng(self.ground.config.seed)
        most = min(launches, len(gains))
        found = [max(0.0, *draw.choice(gains, most, replace=False)) for _ in range(RANDOM_DRAWS)]
        return math.exp(float(np.mean(found)))

    def _failed_before(self) -> list[TrialRecord]:
        """What crashed on this host, with this engine, in earlier studies."""
        return [each.record for each in self.ground.earlier if each.tells_costs]

    def _is_exhaustive(self) -> bool:
        return len(self.ground.survey.servers) + 1 <= self.ground.launches

    def _seen(self, records: Sequence[TrialRecord]) -> list[int]:
        known = (self._servers.get(r.digest) for r in records if r.state != "baseline")
        return [server for server in known if server is not None]

    def _first(self, situation: Situation, seen: Sequence[int]) -> int | None:
        """One server of every method: the deepest chain of a draft model, because it tells the
        acceptance at every smaller depth, or a lookup of ordinary size."""
        taught = [e.server for e in self._earlier if e.server != BASELINE and e.tells_acceptance]
        tried = {self._roles[server].method for server in [*seen, *taught]}
        if len(tried) >= MOST_METHODS or self._played is not None:
            return None
        fresh = [i for i in situation.remaining if self._roles[i].method not in tried]
        if not fresh:
            return None
        draws = np.random.default_rng(situation.seed).uniform(0, 1e-3, len(fresh))
        merits = [self._telling(self._roles[index]) for index in fresh]
        return fresh[int(np.argmax(np.array(merits) + draws))]

    def _telling(self, roles: Roles) -> float:
        if roles.is_lookup:
            unlike = abs(math.log2(max(roles.depth, 1.0) / ORDINARY_DEPTH))
            return -unlike - abs(math.log2(max(roles.match, 1.0) / ORDINARY_MATCH))
        return roles.depth - 1000.0 * (roles.branch > 1)

    def _is_done(self, belief: Belief, gains: Array, situation: Situation) -> bool:
        known = (r for r in situation.records if r.digest in self._servers)
        measured = [record for record in known if gain_of(record) is not None]
        least = max(SLACK, belief.noise)
        top = int(np.argmax(gains))
        enough = LEAST_LAUNCHES
        if not belief.is_counted:
            enough = 2 * (LEAST_LAUNCHES + self._designs.rows.shape[1])
        taught = sum(e.tells_acceptance and e.tells_costs for e in self._earlier)
        if not measured or len(measured) + taught < enough or gains[top] > CERTAIN * SLACK:
            return False
        index = situation.remaining[top]
        self.why = (
            f"no remaining server can be expected to beat the best by more than "
            f"{units.ratio(1 + least)}: the most promising of {len(situation.remaining)} is "
            f"predicted at {math.exp(float(belief.means[index])):.2f}x baseline, "
            f"the best is at {math.exp(belief.best):.2f}x"
        )
        self.skipped = int(belief.hopeless(situation.remaining).sum())
        self.why += self.left_out
        return True


def _floor(means: Array, sds: Array, tried: Sequence[int]) -> float:
    """The lower end of the best, the baseline included; -inf before enough was launched."""
    if len(tried) < LEAST_LAUNCHES:
        return -math.inf
    return max(0.0, float(np.max(means[list(tried)] - SURE * sds[list(tried)])))


def make_model_suggester(ground: Ground) -> ModelSuggester:
    """The suggester behind `search.sampler: model`."""
    return ModelSuggester(ground)
