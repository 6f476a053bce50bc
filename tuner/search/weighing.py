"""Owns what is believed of every finalist: its confirmation launches and the model, as one number.

Counters are exact and clocks are noisy: where the launches cannot separate two servers, the model
that was fitted to all launches of the search can. Both are weighed by their precision; the model
weighs less the farther it is from what the launches show. The interval of the gain that is
reported does not come from here: it rests on launches alone. Pure; knows no Optuna.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.measure.statistics import robust_center
from tuner.search.objective import Objective
from tuner.store.record import ConfirmationLaunch

Array: TypeAlias = NDArray[np.float64]

SKEWED = -0.25
"""Below this skewness of log speeds, disturbance only ever slows: a server's speed is then its
fastest pass over each block, which is far steadier than the mean."""

SKEW_CELLS = 24
"""Values (beyond the first of each block) that a skewness must rest on."""

CENTER_POWER, FASTEST_POWER = 1.0, 1.3
"""By which power of the rounds the variance of a level falls: a mean's, and a fastest pass's
(exponential noise would give 2, what is recorded gives less)."""


BY_TOKENS = ("output_tokens_per_s", "output_tokens_per_s_per_gpu")
"""Metrics of which blocks together have the tokens of all by the seconds of all."""

OWN_WORD = 12.0
"""Finalists that the model's own word on its errors is worth: so few cannot refute it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a model expects of a server: log ratio to the baseline and its standard deviation."""

    gain: float
    sd: float


@dataclass(frozen=True, slots=True)
class Weighed:
    """A finalist's log ratio to the baseline by launches and by both, with the model's share."""

    launched: float
    gain: float
    sd: float
    model_share: float


def weigh(
    digests: Sequence[str],
    launches: Sequence[ConfirmationLaunch],
    objective: Objective,
    expected: Mapping[str, Expected] | None = None,
) -> dict[str, Weighed]:
    """Every finalist that was launched, its launches and the model weighed by precision.

    Args:
        digests: the finalists.
        launches: the confirmation's; trial 0 is the baseline.
        objective: what is compared.
        expected: what a model expects, by digest; None or incomplete: launches alone count.
    """
    tables = tables_of(digests, launches, objective.direction)
    tokens = tokens_of(launches) if objective.metric in BY_TOKENS else None
    if "" not in tables or len(tables) < 2:
        return {}
    levels, variance = levels_of(list(tables.values()), tokens)
    del tables[""]
    launched = np.array(levels[1:]) - levels[0]
    known = expected or {}
    names = list(tables)
    if not all(name in known for name in names):
        sd = math.sqrt(variance)
        found = zip(names, launched, strict=True)
        return {name: Weighed(float(gain), float(gain), sd, 0.0) for name, gain in found}
    modelled = np.array([known[name].gain for name in names])
    doubt = model_variance(launched - modelled, [known[name].sd for name in names], variance)
    share = variance / (variance + doubt)
    both = share * modelled + (1.0 - share) * launched
    sd = math.sqrt(share * doubt)
    return {
        name: Weighed(float(launched[place]), float(both[place]), sd, share)
        for place, name in enumerate(names)
    }


def model_variance(gaps: Array, sds: Sequence[float], variance: float) -> float:
    """Variance of the model's errors: what it says itself, corrected by what launches show.

    What all finalists share does not change their order and is left out.
    """
    stated, freedom = float(np.mean(np.square(sds))), len(gaps) - 1
    shown = float(np.var(gaps, ddof=1)) - variance if freedom else 0.0
    pooled = (OWN_WORD * stated + freedom * max(shown, 0.0)) / (OWN_WORD + freedom)
    return max(stated, pooled, 1e-8)


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


def levels_of(tables: Sequence[Array], tokens: Array | None = None) -> tuple[list[float], float]:
    """The level of each table, and the variance of each by the noise they show together.

    With tokens a level is that of all blocks together, as a server's speed is: tokens by seconds.
    """
    rounds = min(len(table) for table in tables)
    is_skewed = skewness(tables) < SKEWED
    levels = [
        _over_blocks(table.max(axis=0), tokens)
        if is_skewed
        else robust_center([_over_blocks(row, tokens) for row in table])
        for table in tables
    ]
    squares = sum((_launch_squares(table) for table in tables), 0.0)
    freedom = sum(len(table) - 1 for table in tables)
    single: float = squares / freedom if freedom else math.inf
    power = FASTEST_POWER if is_skewed else CENTER_POWER
    return levels, max(single / rounds**power, 1e-8)


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
