"""Owns the sentinels of a study: the baseline launched again and again, and what that allows.

From where they stand along the launches and how fast they were follow the machine's noise, its
drift, the correction of what was measured between them, and whether the host is fit at all.
Knows no trial: positions and values by block in, numbers and words out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.measure.noise import Drift, LaunchNoise, drift, launch_levels, spread

UNFIT_SD = 0.15
"""Launches of one server that vary by more (one standard deviation) hide every ordinary gain."""

UNFIT_DRIFT = 0.25
"""A machine that changed by more along a study measured two machines."""


@dataclass(frozen=True, slots=True)
class Sentinels:
    """Launches of one server: the position of each in the study, and its log level."""

    positions: tuple[float, ...]
    levels: tuple[float, ...]

    @property
    def drift(self) -> Drift:
        """The trend along the launches."""
        return drift(self.positions, self.levels)

    @property
    def noise(self) -> LaunchNoise:
        """How much launches differ, a significant drift taken out."""
        return spread(self.positions, self.levels, self.drift)

    def shift(self, position: float) -> float:
        """Log units by which the machine stood above its typical level at a position.

        0 unless the drift is significant. Then straight lines join the sentinels; beyond the
        last one the trend goes on.
        """
        trend = self.drift
        if not trend.is_significant:
            return 0.0
        inside = float(np.interp(position, self.positions, self.levels))
        beyond = max(0.0, position - self.positions[-1])
        return inside + trend.slope * beyond - float(np.mean(self.levels))

    @property
    def is_drifting(self) -> bool:
        """True when what was measured at different times is corrected."""
        return self.drift.is_significant

    def trouble(self) -> str:
        """Why this host is unfit to compare servers on; empty when it is fit."""
        noise, trend = self.noise, self.drift
        if trend.is_significant and abs(trend.change) > UNFIT_DRIFT:
            return (
                f"the baseline must change by less than {UNFIT_DRIFT:.0%} along a study, got "
                f"{trend.change:+.0%} in {trend.span:.0f} launches"
            )
        if noise.df >= 2 and noise.sd > UNFIT_SD:
            return (
                f"launches of the baseline must differ by less than {UNFIT_SD:.0%} (one standard "
                f"deviation), got {noise.sd:.0%} in {len(self.levels)} launches"
            )
        return ""


def sentinels(positions: Sequence[float], launches: Sequence[Sequence[float]]) -> Sentinels:
    """The sentinels at these positions, each with its values by block; launches without a value
    are left out."""
    known = [
        (place, launch)
        for place, launch in zip(positions, launches, strict=True)
        if any(value > 0 for value in launch)
    ]
    levels = launch_levels([launch for _, launch in known])
    if len(levels) != len(known):
        return Sentinels((), ())
    return Sentinels(tuple(place for place, _ in known), tuple(levels))
