"""Distributions against published tables and exact counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.distributions import (
    f_quantile,
    fisher_less,
    incomplete_beta,
    normal_quantile,
    t_cdf,
    t_quantile,
)


@pytest.mark.parametrize(
    ("share", "df", "value"),
    [
        (0.975, 1, 12.7062047364),
        (0.975, 2, 4.3026527297),
        (0.975, 3, 3.1824463053),
        (0.95, 5, 2.0150483733),
        (0.995, 9, 3.2498355416),
        (0.975, 30, 2.0422724563),
        (0.975, 1000, 1.9623390808),
        (0.5, 4, 0.0),
        (0.025, 3, -3.1824463053),
    ],
)
def test_t_quantiles_of_the_tables(share: float, df: float, value: float) -> None:
    assert t_quantile(share, df) == pytest.approx(value, abs=1e-8)


@given(st.floats(0.001, 0.999), st.floats(1, 200))
def test_quantile_inverts_the_distribution(share: float, df: float) -> None:
    assert t_cdf(t_quantile(share, df), df) == pytest.approx(share, abs=1e-9)


def test_t_becomes_normal() -> None:
    assert t_cdf(1.0, math.inf) == pytest.approx(0.8413447461)
    assert t_quantile(0.975, 1e7) == pytest.approx(normal_quantile(0.975), abs=1e-5)


@pytest.mark.parametrize(("share", "df"), [(0.0, 3), (1.0, 3), (0.9, 0.5)])
def test_t_quantile_says_what_it_takes(share: float, df: float) -> None:
    with pytest.raises(ValueError, match=r"share must be in \(0, 1\)"):
        t_quantile(share, df)


@pytest.mark.parametrize(
    ("share", "above", "below", "value"),
    [(0.95, 3, 9, 3.862548), (0.99, 3, 9, 6.991917), (0.95, 1, 10, 4.964603)],
)
def test_f_quantiles_of_the_tables(share: float, above: float, below: float, value: float) -> None:
    assert f_quantile(share, above, below) == pytest.approx(value, abs=1e-5)


def test_f_of_one_is_t_squared() -> None:
    assert f_quantile(0.95, 1, 7) == pytest.approx(t_quantile(0.975, 7) ** 2, rel=1e-7)


@given(st.floats(0.0, 1.0), st.floats(0.5, 50), st.floats(0.5, 50))
def test_incomplete_beta_is_a_share(x: float, a: float, b: float) -> None:
    value = incomplete_beta(x, a, b)
    assert -1e-12 <= value <= 1 + 1e-12
    assert value + incomplete_beta(1 - x, b, a) == pytest.approx(1.0, abs=1e-9)


def test_fisher_by_hand() -> None:
    # The lady tasting tea, 3 of 4 right: p = 17/70 for at least 3, so 1 - 17/70 + 16/70 for <= 3.
    assert fisher_less(1, 4, 3, 4) == pytest.approx(17 / 70)
    assert fisher_less(4, 4, 4, 4) == 1.0
    assert fisher_less(0, 10, 10, 10) == pytest.approx(1 / math.comb(20, 10))


@given(st.integers(0, 30), st.integers(0, 30))
def test_fisher_is_a_probability(a: int, b: int) -> None:
    p = fisher_less(a, 30, b, 30)
    assert 0 < p <= 1
    assert a > b or p <= fisher_less(min(30, a + 1), 30, b, 30) + 1e-12
