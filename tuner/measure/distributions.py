"""Owns the few distributions the statistics need, in plain Python: no data, no decisions."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_STANDARD = NormalDist()
_TINY = 1e-300


def normal_quantile(share: float) -> float:
    """The standard normal value below which `share` of it lies; `share` in (0, 1)."""
    return _STANDARD.inv_cdf(share)


def t_cdf(value: float, df: float) -> float:
    """Share of Student's t with `df` degrees of freedom below `value`."""
    if math.isinf(df):
        return _STANDARD.cdf(value)
    tail = 0.5 * incomplete_beta(df / (df + value * value), df / 2, 0.5)
    return 1 - tail if value > 0 else tail


@lru_cache(maxsize=1024)
def t_quantile(share: float, df: float) -> float:
    """The value below which `share` of Student's t lies, to ten digits; `share` in (0, 1).

    Raises ValueError for a share outside (0, 1) or less than one degree of freedom.
    """
    if not 0 < share < 1 or df < 1:
        raise ValueError(f"share must be in (0, 1) and df at least 1, got {share} and {df}")
    if share < 0.5:
        return -t_quantile(1 - share, df)
    low, high = 0.0, 1.0
    while t_cdf(high, df) < share:
        low, high = high, 2 * high
    while high - low > 1e-11 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < share else (low, middle)
    return (low + high) / 2


@lru_cache(maxsize=1024)
def f_quantile(share: float, df_above: float, df_below: float) -> float:
    """The value below which `share` of the F distribution lies; `share` in (0, 1)."""

    def below(value: float) -> float:
        scaled = df_above * value
        return incomplete_beta(scaled / (scaled + df_below), df_above / 2, df_below / 2)

    low, high = 0.0, 1.0
    while below(high) < share:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < share else (low, middle)
    return (low + high) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
        + a * math.log(x) + b * math.log1p(-x)
    )  # fmt: skip
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _beta_fraction(x, a, b) / a
    return 1 - math.exp(log_front) * _beta_fraction(1 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            total *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return total


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def fisher_less(a_hits: int, a_count: int, b_hits: int, b_count: int) -> float:
    """One-sided p of Fisher's exact test that a's share of hits is lower than b's."""
    total, hits = a_count + b_count, a_hits + b_hits
    ways = math.comb(total, hits)
    least = max(0, hits - b_count)
    tail = sum(
        math.comb(a_count, k) * math.comb(b_count, hits - k) for k in range(least, a_hits + 1)
    )
    return tail / ways
