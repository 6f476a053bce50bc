"""Owns what measured numbers allow to say: ratios with intervals, bounds that may be peeked at.

Everything works on logarithms of ratios, so that gains multiply and no direction is special.
Blocks are replicates within a launch; launches are the replicates that count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.measure.distributions import f_quantile, t_quantile

__all__ = [
    "Interval",
    "PairedBound",
    "family_level",
    "gain_interval",
    "gain_intervals",
    "log_ratios",
    "mean_interval",
    "paired_bound",
    "paired_gain",
    "robust_center",
    "t_quantile",
]

# The robust centre of a few rounds is up to a tenth less precise than their mean (simulated for
# three to eight Gaussian rounds; 1.047 in the limit).
_CENTER_VARIANCE = 1.10


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio with its interval; above 1 is better whatever the metric's direction.

    `replicates` is what it rests on (rounds of launches); `sd` their standard deviation in log
    units. An interval from fewer than two replicates is unbounded.
    """

    ratio: float
    low: float
    high: float
    replicates: int = 0
    sd: float = math.nan

    @property
    def half_width(self) -> float:
        """Half the interval in log units: about the relative precision."""
        return (math.log(self.high) - math.log(self.low)) / 2 if self.low > 0 else math.inf

    @property
    def is_gain(self) -> bool:
        """True when the whole interval lies above 1."""
        return self.low > 1

    @property
    def is_loss(self) -> bool:
        """True when the whole interval lies below 1."""
        return self.high < 1


class PairedBound(NamedTuple):
    """A ratio within one launch, with bounds that hold however often one looks."""

    ratio: float
    upper: float
    lower: float


def log_ratios(
    values: Sequence[float], reference: Sequence[float], direction: str = "maximize"
) -> tuple[float, ...]:
    """Log ratios of values to a reference, pair by pair, above 0 where the value is better.

    Pairs stop at the shorter series; pairs that are not both finite and positive are left out.
    """
    sign = -1.0 if direction == "minimize" else 1.0
    return tuple(
        sign * math.log(value / other)
        for value, other in zip(values, reference, strict=False)
        if 0 < value < math.inf and 0 < other < math.inf
    )


def mean_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """Mean and its two-sided Student interval; unbounded from fewer than two values."""
    if not values:
        return math.nan, -math.inf, math.inf
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, -math.inf, math.inf
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = t_quantile((1 + level) / 2, len(values) - 1) * error
    return mean, mean - half, mean + half


def family_level(level: float, candidates: int) -> float:
    """The level at which each of several intervals is to be made, so that all hold together.

    Bonferroni: with three finalists at this level, the chance that any server without a gain
    shows one stays what it is for a single server.
    """
    return 1 - (1 - level) / max(1, candidates)


def robust_center(values: Sequence[float] | NDArray[np.float64]) -> float:
    """The Hodges-Lehmann centre: median of all pairwise means. NaN without values.

    Nearly as precise as the mean on clean values (95 %), and unmoved by up to 29 % outliers:
    one block disturbed by another process does not decide a comparison.
    """
    if not len(values):
        return math.nan
    array = np.asarray(values, dtype=float)
    rows, columns = _pairs(len(array))
    means = np.sort(array[rows] + array[columns]) / 2
    return float(means[(len(means) - 1) // 2] + means[len(means) // 2]) / 2


@lru_cache(maxsize=64)
def _pairs(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.triu_indices(count)


def paired_gain(
    values: Sequence[float], reference: Sequence[float], direction: str = "maximize"
) -> float:
    """How many times better one launch is than another, paired by block, robustly; NaN unknown."""
    return math.exp(robust_center(log_ratios(values, reference, direction)))


def gain_interval(
    launches: Sequence[Sequence[float]],
    reference: Sequence[Sequence[float]],
    *,
    direction: str = "maximize",
    level: float = 0.95,
    noise: tuple[float, int] = (math.nan, 0),
) -> Interval:
    """The gain of one server over another; see `gain_intervals`."""
    return gain_intervals([launches], reference, direction=direction, level=level, noise=noise)[0]


def gain_intervals(
    servers: Sequence[Sequence[Sequence[float]]],
    reference: Sequence[Sequence[float]],
    *,
    direction: str = "maximize",
    level: float = 0.95,
    noise: tuple[float, int] = (math.nan, 0),
) -> list[Interval]:
    """The gains of several servers over a reference from interleaved rounds of fresh launches.

    A randomised block design: servers are treatments, rounds are blocks. Each launch has one
    robust log level; what is left of the levels after server and round means gives the launch
    noise, pooled over all servers: with three finalists and four rounds it has nine degrees of
    freedom instead of three. Student's intervals follow. A server that is significantly more
    variable than the others, or has rounds without values, is judged by its own rounds alone.

    Args:
        servers: per server and round, its values by block.
        reference: per round, the reference server's values by block.
        direction: "maximize" or "minimize".
        level: coverage of each two-sided interval (see `family_level`).
        noise: launch-to-launch standard deviation in log units known from repeated launches of
            one server, and its degrees of freedom; pooled with what the rounds show.
    """
    sign = -1.0 if direction == "minimize" else 1.0
    rows = [_levels(launches, len(reference)) for launches in (reference, *servers)]
    levels: NDArray[np.float64] = sign * np.array(rows)
    levels = levels[:, np.isfinite(levels[0])]
    is_whole = [bool(np.isfinite(row).all()) for row in levels]
    together = iter(_joint_intervals(levels[is_whole], level, noise))
    return [
        next(together) if whole else _joint_intervals(levels[[0, place]], level, noise)[0]
        for place, whole in enumerate(is_whole[1:], 1)
    ]


def _levels(launches: Sequence[Sequence[float]], rounds: int) -> NDArray[np.float64]:
    """Log level of each launch of one server; NaN for launches without values.

    A launch is compared with the server's own usual value of each block, so that blocks on
    which a server is especially good or bad do not count as noise (a median polish).
    """
    logs = _logs(launches, rounds)
    seen = np.isfinite(logs).any(axis=1)
    levels = np.full(rounds, np.nan)
    if not seen.any():
        return levels
    rows = logs[seen][:, np.isfinite(logs).any(axis=0)]
    center = np.zeros(len(rows))
    for _ in range(3):
        usual = np.nanmedian(rows - center[:, None], axis=0)
        center = np.array([robust_center(row[np.isfinite(row)]) for row in rows - usual])
    levels[seen] = center + usual.mean()
    return levels


def _logs(launches: Sequence[Sequence[float]], rounds: int) -> NDArray[np.float64]:
    """Logarithms by launch and block; NaN for what is missing, or not positive and finite."""
    width = max((len(launch) for launch in launches), default=0)
    values = np.full((rounds, width), np.nan)
    for row, launch in zip(values, launches, strict=False):
        row[: len(launch)] = launch
    return np.log(np.where((values > 0) & np.isfinite(values), values, np.nan))


def _joint_intervals(
    levels: NDArray[np.float64], level: float, noise: tuple[float, int]
) -> list[Interval]:
    """Intervals of the servers in rows 1, 2, … over row 0, from rounds without gaps."""
    levels = levels[:, np.isfinite(levels).all(axis=0)]
    gains = levels[1:] - levels[0]
    rounds = gains.shape[1]
    if rounds == 0:
        return [Interval(math.nan, 0.0, math.inf) for _ in gains]
    squares, df = _residual_squares(levels)
    if noise[1] > 0 and math.isfinite(noise[0]):
        squares, df = squares + noise[1] * noise[0] ** 2, df + noise[1]
    pooled = 2 * squares / df if df else math.nan
    return [
        _interval(gain, float(gain.var(ddof=1)), rounds - 1, level)
        if _is_wild(levels, gains, server)
        else _interval(gain, pooled, df, level)
        for server, gain in enumerate(gains)
    ]


def _residual_squares(levels: NDArray[np.float64]) -> tuple[float, int]:
    """Sum of squares and degrees of freedom left after server and round means."""
    servers, rounds = levels.shape
    by_server = levels.mean(axis=1, keepdims=True)
    by_round = levels.mean(axis=0, keepdims=True)
    left = levels - by_server - by_round + levels.mean()
    return float(np.sum(left**2)), (servers - 1) * (rounds - 1)


def _is_wild(levels: NDArray[np.float64], gains: NDArray[np.float64], server: int) -> bool:
    """True when a server's gain varies more than that of the others, at the 1 % level."""
    others, other_df = _residual_squares(np.delete(levels, server + 1, axis=0))
    own_df = gains.shape[1] - 1
    if not own_df or not other_df:
        return False
    least = f_quantile(0.99, own_df, other_df) * 2 * others / other_df
    return float(gains[server].var(ddof=1)) > max(least, 1e-12)


def _interval(gain: NDArray[np.float64], variance: float, df: int, level: float) -> Interval:
    """Student's interval of one server's gain, centred robustly over its rounds."""
    rounds, mean = len(gain), robust_center(gain)
    if df < 1:
        return Interval(math.exp(mean), 0.0, math.inf, rounds)
    error = math.sqrt(variance * (_CENTER_VARIANCE if rounds > 2 else 1.0) / rounds)
    half = t_quantile((1 + level) / 2, df) * error
    return Interval(
        math.exp(mean), math.exp(mean - half), math.exp(mean + half), rounds, math.sqrt(variance)
    )


def paired_bound(
    ratios: Sequence[float], *, margin: float = 0.0, alpha: float = 0.05, effect: float = 4.0
) -> PairedBound:
    """Bounds on the mean log ratio of a launch that hold at every look, each with risk `alpha`.

    A confidence sequence by the scale-invariant mixture t-test (Lai 1976; Pérez-Ortiz et al.
    2022, "E-statistics, group invariance and anytime-valid testing"): with n ratios, mean m and
    sum of squares S about it, a mean μ is excluded when
    `((S + n(m-μ)²) / (S + n(m-μ)²/(1+ng)))^(n/2) / sqrt(1+ng) >= 1/(2 alpha)`.
    Looking after every block does not inflate the risk. Gaussian ratios are assumed; outliers
    widen it.

    Args:
        ratios: log ratios by block, as `log_ratios` gives them.
        margin: log units by which a launch may be off as a whole; widens both bounds.
        alpha: risk per side.
        effect: size of effects, in standard deviations of a block, that it is tuned for.
    """
    count = len(ratios)
    mean = float(np.mean(ratios)) if count else math.nan
    half = _sequence_half_width(ratios, alpha, effect**2) + margin
    if not math.isfinite(half):
        return PairedBound(math.exp(mean), math.inf, 0.0)
    return PairedBound(math.exp(mean), math.exp(mean + half), math.exp(mean - half))


def _sequence_half_width(ratios: Sequence[float], alpha: float, g: float) -> float:
    count = len(ratios)
    if count < 2:
        return math.inf
    spread = 1 + count * g
    least = (spread / (2 * alpha) ** 2) ** (1 / count)
    if least >= spread:
        return math.inf
    squares = float(np.var(ratios)) * count
    return math.sqrt(squares * (least - 1) / (count * (1 - least / spread)))
