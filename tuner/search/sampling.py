"""Owns choosing the next server: among the enumerated distinct legal ones that remain.

Nothing is suggested twice and nothing illegal at all. How Optuna sees a choice is in lattice.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tuner.args import Params
from tuner.config.study import SearchConfig
from tuner.errors import UsageError
from tuner.search.telling import is_config_fault
from tuner.space import SearchSpace, SpaceSurvey
from tuner.store.record import TrialRecord

if TYPE_CHECKING:
    from tuner.engines.base import Engine
    from tuner.search.learning import Earlier

MAX_HOST_FAULTS = 2
"""So many failures of one server that were not its fault, and it is left alone."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a search may choose from, and what it is told about choosing.

    Args:
        space: the user's parameters.
        survey: the distinct legal servers; a proposal is an index into `survey.servers`.
        config: the `search:` section.
        maximize: direction of the objective.
        launches: the budget of launches, the baseline's included.
        engine: for samplers that know what a server's arguments mean.
        metric, load: the objective's; "" unknown.
        earlier: launches of earlier studies, and what of them may be believed.
    """

    space: SearchSpace
    survey: SpaceSurvey
    config: SearchConfig
    maximize: bool = True
    launches: int = 30
    engine: Engine | None = None
    metric: str = ""
    load: str = ""
    earlier: tuple[Earlier, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """The study at the moment of choosing.

    Args:
        records: finished trials, in order.
        remaining: indices of servers that may still be launched; never empty.
        running: indices of servers that are being measured elsewhere right now.
        seed: differs at every choice and is the same again when the same study is resumed.
    """

    records: Sequence[TrialRecord]
    remaining: Sequence[int]
    running: Sequence[int]
    seed: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """The server to launch next; `predicted` is its expected ratio to the baseline, if any."""

    index: int
    predicted: float | None = None


class Suggester(Protocol):
    """Chooses the next server."""

    def propose(self, situation: Situation) -> Proposal | None:
        """One of `situation.remaining`; None when none is worth a launch."""
        ...


def make_suggester(ground: Ground) -> Suggester:
    """The suggester that `search.sampler` names.

    Raises:
        UsageError: it needs a package that is not installed.
    """
    from tuner.search import strategies

    name = ground.config.sampler
    if name == "model":
        from tuner.search.model_sampler import make_model_suggester

        return make_model_suggester(ground)
    if name == "grid":
        return strategies.Grid()
    if name == "gp":
        require_packages("search.sampler gp", "torch", "scipy")
    if len(ground.survey.servers) + 1 <= ground.launches:
        return strategies.Exhaustive(ground)
    if name == "random":
        return strategies.Random()
    return strategies.Surrogate(ground)


def require_packages(what: str, *names: str) -> None:
    """Refuse before the first launch what would fail after some; raises UsageError."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"{what}: must have {' and '.join(missing)} installed, got none.",
            f"Install: pip install {' '.join(missing)}; or choose another one.",
        )


# ---- what may still be launched ---------------------------------------------------------------


def settled_digests(records: Sequence[TrialRecord]) -> set[str]:
    """Digests of servers that need no further launch: measured, or failed by their own fault."""
    settled: set[str] = set()
    host_faults: dict[str, int] = {}
    for record in records:
        if record.state == "failed" and not is_config_fault(record):
            host_faults[record.digest] = host_faults.get(record.digest, 0) + 1
        else:
            settled.add(record.digest)
    return settled | {digest for digest, n in host_faults.items() if n >= MAX_HOST_FAULTS}


def situation_of(
    ground: Ground,
    records: Sequence[TrialRecord],
    busy: set[str],
    n_existing: int,
    digests: Sequence[str] | None = None,
) -> Situation | None:
    """What can be chosen now; None when every server is settled or busy.

    Args:
        ground: the servers.
        records: finished trials.
        busy: digests of servers that run or wait elsewhere.
        n_existing: trials of the study in any state.
        digests: of the servers, where the caller keeps them; None: computed.
    """
    digests = digests or [args.digest for _, args in ground.survey.servers]
    settled = settled_digests(records)
    remaining, running = [], []
    for index, digest in enumerate(digests):
        if digest in busy:
            running.append(index)
        elif digest not in settled:
            remaining.append(index)
    if not remaining:
        return None
    return Situation(records, remaining, running, ground.config.seed + n_existing)


def complete_point(ground: Ground, partial: Params) -> Params | None:
    """The point a queued, possibly partial one means; None when the space has none like it.

    It may be infeasible or a duplicate: whoever queued it wants to read that.
    """
    for name, value in partial.items():
        known = {p.name: p.values for p in ground.space.parameters}.get(name, ())
        if value not in known:
            return None
    try:
        return ground.space.complete(partial)
    except KeyError:
        wanted = partial.items()
        agreeing = (params for params, _ in ground.survey.servers if wanted <= params.items())
        return next(agreeing, None)
