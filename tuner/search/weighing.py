"""Owns what launches of the confirmation say of servers, and what of it the model is told.

Counters are exact and clocks are noisy: where the launches cannot separate two servers, the model
that is fitted to all launches, of the search and of the confirmation, can. Where disturbance only
ever slows, a server is its fastest pass over each block, for the launches' own word and for what
the model is told. The interval of the gain that is reported does not come from here. Pure; knows
no Optuna.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.measure.statistics import robust_center
from tuner.model.speculation import MISFIT
from tuner.search.objective import Objective
from tuner.store.record import ConfirmationLaunch, LoadPointRecord, TrialRecord

Array: TypeAlias = NDArray[np.float64]

SKEWED = -0.25
"""Below this skewness of log speeds, disturbance only ever slows: a server's speed is then its
fastest pass over each block, which is far steadier than the mean."""

SKEW_CELLS = 24
"""Values (beyond the first of each block) that a skewness must rest on."""

BY_TOKENS = ("output_tokens_per_s", "output_tokens_per_s_per_gpu")
"""Metrics of which blocks together have the tokens of all by the seconds of all."""


LEAST_NOISE = 0.005
"""Log units by which launches of one server differ at least."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a model expects of a server: log ratio to the baseline and its standard deviation."""

    gain: float
    sd: float


@dataclass(frozen=True, slots=True)
class Launched:
    """Log ratios to the baseline by digest, and the standard deviation of single launches."""

    gains: Mapping[str, float]
    noise: float

    def sigmas(self, one: str, other: str) -> float:
        """By how many standard deviations of a single launch's difference `one` is faster.

        Of a single one, however many there were: what disturbs a server may outlast them all.
        """
        sd = math.sqrt(2.0) * max(self.noise, LEAST_NOISE)
        return (self.gains[one] - self.gains[other]) / sd


def launched(
    digests: Sequence[str], launches: Sequence[ConfirmationLaunch], objective: Objective
) -> Launched:
    """What the launches alone say of each finalist; trial 0 is the baseline."""
    tables = tables_of(digests, launches, objective.direction)
    if "" not in tables or len(tables) < 2:
        return Launched({}, math.inf)
    tokens = tokens_of(launches) if objective.metric in BY_TOKENS else None
    levels = levels_of(list(tables.values()), tokens)
    gains = {name: level - levels[0] for name, level in zip(tables, levels, strict=True) if name}
    return Launched(gains, noise_of(list(tables.values())))


def corrected(expected: Mapping[str, Expected], measured: Launched) -> dict[str, float]:
    """Log ratios that a model expects, moved towards what launches say by precision.

    The model was told of the launches; what is left is what a server has of its own (MISFIT). Its
    launches count as a single one, however many there were: what disturbs it may outlast them
    all. What all share does not change their order and is left out.
    """
    gains = {name: each.gain for name, each in expected.items()}
    if not all(name in measured.gains for name in gains):
        return gains
    share = MISFIT**2 / (MISFIT**2 + max(measured.noise, LEAST_NOISE) ** 2)
    gaps = {name: measured.gains[name] - gain for name, gain in gains.items()}
    shared = float(np.mean(list(gaps.values())))
    return {name: gain + share * (gaps[name] - shared) for name, gain in gains.items()}


@dataclass(frozen=True, slots=True)
class Told:
    """Launches of the confirmation as the search's records are, and the noise of single ones
    (None: unknown)."""

    records: tuple[TrialRecord, ...] = ()
    noise: float | None = None


def told_to_model(
    launches: Sequence[ConfirmationLaunch], objective: Objective, *, is_slowed: bool
) -> Told:
    """What the model is told of the confirmation, to be fitted to all launches.

    Launches whose load moved are left out: the model knows one load.

    Args:
        launches: the confirmation's.
        objective: what is compared.
        is_slowed: disturbance only ever slows: the launches of one server are then one launch,
            the fastest pass over each block.
    """
    whole = [each for each in launches if each.failure is None and not each.loads]
    digests = {each.digest for each in whole if each.trial}
    tables = tables_of(sorted(digests), whole, objective.direction)
    if "" not in tables:
        return Told()
    noise = noise_of(list(tables.values()))
    base = np.median(tables[""], axis=0)
    usual = np.exp(-base if objective.direction == "minimize" else base).tolist()
    chosen = merged(whole) if is_slowed else whole
    records = tuple(_as_record(each, usual, objective) for each in chosen)
    return Told(records, max(LEAST_NOISE, noise) if math.isfinite(noise) else None)


def merged(launches: Sequence[ConfirmationLaunch]) -> list[ConfirmationLaunch]:
    """One launch per server, each of its blocks the fastest; servers whose counters differ
    between launches stay apart, for there a fast block is a lucky draft."""
    servers: dict[tuple[bool, str], list[ConfirmationLaunch]] = {}
    for each in launches:
        servers.setdefault((each.trial > 0, each.digest), []).append(each)
    found: list[ConfirmationLaunch] = []
    for same in servers.values():
        found += [_fastest(same)] if _is_repeated(same) else same
    return found


def _is_repeated(same: Sequence[ConfirmationLaunch]) -> bool:
    """True when every launch counted the same in every block."""
    counts = [
        {name: row for name, row in each.block_counts.items() if name != "seconds"}
        for each in same
    ]
    first = counts[0]
    return bool(first) and all(
        list(each) == list(first)
        and all(np.array_equal(each[name], first[name], equal_nan=True) for name in first)
        for each in counts
    )


def _fastest(same: Sequence[ConfirmationLaunch]) -> ConfirmationLaunch:
    seconds = np.array([each.block_counts["seconds"] for each in same], dtype=float)
    chosen = seconds.argmin(axis=0)
    blocks = range(len(chosen))
    counts = {**same[0].block_counts, "seconds": seconds.min(axis=0).tolist()}
    values = [same[chosen[block]].per_block[block] for block in blocks]
    return same[0].model_copy(update={"block_counts": counts, "per_block": values})


def _as_record(
    launch: ConfirmationLaunch, base: Sequence[float], objective: Objective
) -> TrialRecord:
    point = LoadPointRecord(load=objective.load.label, block_counts=launch.block_counts)
    gain = robust_center(objective.log_gains(launch.per_block, base))
    return TrialRecord(
        number=launch.trial,
        state="complete" if launch.trial else "baseline",
        digest=launch.digest,
        vs_baseline=math.exp(gain) if math.isfinite(gain) else None,
        load_points=[point],
    )


def tables_of(
    digests: Sequence[str], launches: Sequence[ConfirmationLaunch], direction: str
) -> dict[str, Array]:
    """Log speeds by round and block of the baseline (named "") and of each finalist."""
    sign = -1.0 if direction == "minimize" else 1.0
    tables: dict[str, Array] = {}
    for name in ("", *digests):
        rows = [
            launch.per_block
            for launch in launches
            if launch.failure is None and (launch.digest if launch.trial else "") == name
        ]
        width = min((len(row) for row in rows), default=0)
        values = np.array([row[:width] for row in rows], dtype=float)
        if width and bool(np.all(np.isfinite(values) & (values > 0))):
            tables[name] = sign * np.log(values)
    return tables


def tokens_of(launches: Sequence[ConfirmationLaunch]) -> Array | None:
    """Usual tokens of each block; None where they were not counted for every one."""
    rows = [each.block_counts.get("tokens", []) for each in launches if each.failure is None]
    wanted = {len(each.per_block) for each in launches if each.failure is None}
    if len(wanted) != 1 or {len(row) for row in rows} != wanted:
        return None
    tokens: Array = np.median(np.array(rows, dtype=float), axis=0)
    return tokens if bool(np.all(tokens > 0)) else None


def levels_of(tables: Sequence[Array], tokens: Array | None = None) -> list[float]:
    """The level of each table: the fastest pass where disturbance only slows, else the centre.

    With tokens a level is that of all blocks together, as a server's speed is: tokens by seconds.
    """
    is_skewed = skewness(tables) < SKEWED
    return [
        _over_blocks(table.max(axis=0), tokens)
        if is_skewed
        else robust_center([_over_blocks(row, tokens) for row in table])
        for table in tables
    ]


def noise_of(tables: Sequence[Array]) -> float:
    """Standard deviation of single launches in log units, pooled over all; inf unknown."""
    squares = sum((_launch_squares(table) for table in tables), 0.0)
    freedom = sum(len(table) - 1 for table in tables)
    return math.sqrt(squares / freedom) if freedom else math.inf


def skewness(tables: Sequence[Array]) -> float:
    """Skewness of log speeds about the mean of their server and block; 0 where few tell."""
    left = np.concatenate([(table - table.mean(axis=0)).ravel() for table in tables])
    cells = sum((len(table) - 1) * table.shape[1] for table in tables)
    spread = float(np.mean(left**2))
    if cells < SKEW_CELLS or spread <= 0:
        return 0.0
    return float(np.mean(left**3) / spread**1.5)


def _over_blocks(logs: Array, tokens: Array | None) -> float:
    if tokens is None or len(tokens) != len(logs):
        return float(np.mean(logs))
    return -math.log(float(np.average(np.exp(-logs), weights=tokens)))


def _launch_squares(table: Array) -> float:
    levels = (table - np.median(table, axis=0)).mean(axis=1)
    return float(np.sum((levels - levels.mean()) ** 2))
