"""Owns what a step costs, fitted to the counts of a study's servers, the baseline among them.

Counts alone cannot always tell the parts apart (in a chain every pass is also a verified token);
the weak prior of `model.clock` decides then, and the covariance says how little is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.insight.counts import Steps
from tuner.model.clock import Clock, fit_clock
from tuner.model.gaussian import Array

DRAWS = 800
SEED = 20_261_101


def clock_of(counted: Sequence[Steps]) -> Clock | None:
    """The clock of servers that were counted and timed; None without a single one."""
    known = [each for each in counted if each.seconds > 0]
    if not known:
        return None
    plain = [each.seconds for each in known if not each.drafting]
    unit = float(np.median(plain)) if plain else min(each.seconds for each in known)
    rows = np.array([row(each.verified, each.passes, each.drafting) for each in known])
    return fit_clock(rows, np.array([each.seconds for each in known]), unit)


def row(verified: float, passes: float, drafting: float = 1.0) -> Array:
    """One server as the clock counts it, per step: request, step, draft, verified tokens, passes.

    Prefill is no part of a step, so no request is counted.
    """
    return np.array([0.0, 1.0, drafting, verified * drafting, passes * drafting])


def draws_of(clock: Clock) -> Array:
    """Plausible coefficients of a clock, one row each; the same on every machine."""
    source = np.random.default_rng(SEED)
    found: Array = source.multivariate_normal(
        clock.seconds, clock.covariance, size=DRAWS, method="eigh"
    )
    return np.maximum(found, 0.0)
