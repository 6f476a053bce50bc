"""Owns how much this machine varies: between launches, and along a study.

Estimated from the baseline launched again and again; used for margins, for the number of
confirmation rounds, and to tell what gain a study could have seen at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.measure.distributions import t_quantile
from tuner.measure.statistics import family_level, log_ratios, robust_center

_MOST_ROUNDS = 64

USUAL_SD, USUAL_DF = 0.025, 6
"""Launch noise (log units) of hosts in general, and how many repeats that knowledge is worth."""


@dataclass(frozen=True, slots=True)
class LaunchNoise:
    """Launch-to-launch standard deviation in log units (about relative), with its certainty.

    `df` is 0 and `sd` NaN when the baseline was launched only once.
    """

    sd: float
    df: int

    @property
    def upper_sd(self) -> float:
        """A cautious value of `sd`: its estimate at few launches can be half the truth."""
        return self.sd * (1 + 1 / math.sqrt(2 * self.df)) if self.df else math.nan

    def margin(self, least: float = 0.01) -> float:
        """Log units by which one launch may be off against another: two standard deviations."""
        return max(least, 2 * self.sd) if self.df else max(least, 0.02)


def pair_margin(noise: LaunchNoise, least: float = 0.01, risk: float = 0.005) -> float:
    """Log units by which one launch of a server may fall behind one of an equal server.

    Both vary, and few repeats of the baseline know the noise badly: what is usual counts as
    `USUAL_DF` degrees of freedom beside them, and Student's quantile pays for the rest.
    """
    df = USUAL_DF + noise.df
    known = noise.df * noise.sd**2 if noise.df else 0.0
    sd = math.sqrt((USUAL_DF * USUAL_SD**2 + known) / df)
    return max(least, t_quantile(1 - risk, df) * math.sqrt(2.0) * sd)


def pooled_noise(*known: LaunchNoise) -> LaunchNoise:
    """One noise from several independent estimates, weighed by their degrees of freedom."""
    told = [each for each in known if each.df > 0 and math.isfinite(each.sd)]
    df = sum(each.df for each in told)
    if not df:
        return LaunchNoise(math.nan, 0)
    return LaunchNoise(math.sqrt(sum(each.df * each.sd**2 for each in told) / df), df)


@dataclass(frozen=True, slots=True)
class Drift:
    """A straight trend of the same server's log value along launches.

    Args:
        slope: change per launch in log units.
        error: its standard error; NaN from fewer than three launches.
        df: degrees of freedom of `error`.
        span: launches between the first and the last one seen.
    """

    slope: float
    error: float
    df: int
    span: float

    @property
    def is_significant(self) -> bool:
        """True when the trend is no accident at the 5 % level.

        Not stricter: a correction that was not needed costs a little precision, a drift that
        was overlooked costs the comparison.
        """
        if self.df < 1 or not math.isfinite(self.error):
            return False
        if self.error == 0:
            return self.slope != 0
        return abs(self.slope / self.error) > t_quantile(0.975, self.df)

    @property
    def change(self) -> float:
        """Relative change from the first launch seen to the last."""
        return math.expm1(self.slope * self.span)


def launch_noise(launches: Sequence[Sequence[float]]) -> LaunchNoise:
    """Launch noise from repeated launches of one server, each a series of per-block values.

    Blocks are paired, so that easy and hard prompts do not count as noise.
    """
    levels = launch_levels(launches)
    return spread(range(len(levels)), levels)


def spread(
    positions: Sequence[float], levels: Sequence[float], trend: Drift | None = None
) -> LaunchNoise:
    """Launch noise of log levels; a significant trend over their positions is taken out first."""
    if len(levels) < 2:
        return LaunchNoise(math.nan, 0)
    array = np.array(levels)
    df = len(array) - 1
    if trend is not None and trend.is_significant and df > 1:
        array = array - trend.slope * np.asarray(positions, dtype=float)
        df -= 1
    return LaunchNoise(float(np.sqrt(np.sum((array - array.mean()) ** 2) / df)), df)


def launch_levels(launches: Sequence[Sequence[float]]) -> list[float]:
    """The log level of each launch against the typical value of each block; NaN left out."""
    if not launches:
        return []
    width = min(len(launch) for launch in launches)
    usual = [float(np.median([launch[block] for launch in launches])) for block in range(width)]
    levels = [robust_center(log_ratios(launch[:width], usual)) for launch in launches]
    return [level for level in levels if math.isfinite(level)]


def drift(positions: Sequence[float], levels: Sequence[float]) -> Drift:
    """The straight trend of log levels over launch positions, by Theil-Sen, with its error.

    Theil-Sen (median of pairwise slopes) is unmoved by one launch that went wrong.
    """
    x, y = np.asarray(positions, dtype=float), np.asarray(levels, dtype=float)
    if len(x) < 2 or np.ptp(x) == 0:
        return Drift(0.0, math.nan, 0, 0.0)
    rows, columns = np.triu_indices(len(x), 1)
    apart = x[columns] - x[rows]
    slope = float(np.median(((y[columns] - y[rows])[apart != 0]) / apart[apart != 0]))
    residuals = y - slope * x
    residuals = residuals - residuals.mean()
    df = len(x) - 2
    spread = math.sqrt(float(np.sum((x - x.mean()) ** 2)))
    error = math.sqrt(float(np.sum(residuals**2)) / df) / spread if df > 0 else math.nan
    return Drift(slope, error, df, float(np.ptp(x)))


def smallest_detectable_gain(
    noise_sd: float, rounds: int, *, finalists: int = 1, level: float = 0.95, power: float = 0.8
) -> float:
    """The ratio that `rounds` interleaved rounds would find with probability `power`.

    As `gain_intervals` decides: at the level of all finalists together, with their pooled
    noise. Infinite below two rounds.
    """
    if rounds < 2 or not math.isfinite(noise_sd):
        return math.inf
    df = finalists * (rounds - 1)
    certain = t_quantile((1 + family_level(level, finalists)) / 2, df)
    found = t_quantile(power, df)
    return math.exp((certain + found) * math.sqrt(2 / rounds) * noise_sd)


def rounds_needed(
    noise_sd: float, half_width: float, *, finalists: int = 1, level: float = 0.95
) -> int:
    """Rounds after which the intervals' half width (log units) is expected to be small enough.

    Chosen from the noise before any round is run: stopping when a result looks good would make
    the interval promise too much. At most 64.
    """
    if not math.isfinite(noise_sd) or half_width <= 0:
        return _MOST_ROUNDS
    share = (1 + family_level(level, finalists)) / 2
    for rounds in range(2, _MOST_ROUNDS):
        quantile = t_quantile(share, finalists * (rounds - 1))
        if quantile * math.sqrt(2 / rounds) * noise_sd <= half_width:
            return rounds
    return _MOST_ROUNDS
