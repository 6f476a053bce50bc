"""Acceptance curves: one deep run tells every smaller depth, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.model.acceptance import curve_from, logit, share_of

SHARES = (0.58, 0.34, 0.22, 0.15, 0.11)


def test_a_deep_chain_predicts_every_depth_exactly() -> None:
    curve = curve_from(SHARES)
    found = curve.accepted(np.zeros(5), np.arange(1.0, 6.0))
    assert found == pytest.approx(np.cumsum(SHARES), abs=1e-6)


def test_beyond_the_last_position_its_acceptance_goes_on() -> None:
    deeper = curve_from(SHARES).accepted(np.zeros(1), np.array([6.0]))[0]
    assert deeper == pytest.approx(sum(SHARES) + 0.11 * 0.11 / 0.15, abs=1e-6)


def test_nothing_is_accepted_without_a_draft() -> None:
    assert curve_from(()).accepted(np.zeros(1), np.zeros(1))[0] == 0.0


@settings(deadline=None)
@given(st.floats(-4, 4), st.integers(1, 48))
def test_the_level_of_a_count_gives_the_count_back(level: float, depth: int) -> None:
    curve, depths = curve_from(()), np.array([float(depth)])
    accepted = curve.accepted(np.array([level]), depths)
    back = curve.levels(accepted, depths)
    assert curve.accepted(back, depths) == pytest.approx(accepted, rel=1e-4, abs=1e-6)


def test_recorded_lookups_at_one_depth_predict_the_others() -> None:
    # ngram-simple, match 4, on the recorded editing prompts: drafted/accepted of 255 tokens.
    recorded = {4: (164, 135), 8: (176, 153), 48: (398, 167)}
    curve, sixteen = curve_from(()), np.array([16.0])
    drafts = 224 / 16
    level = curve.levels(np.array([163 / drafts]), sixteen)
    covered = (drafts + 163) / 255
    for depth, (drafted, accepted) in recorded.items():
        each = curve.accepted(level, np.array([float(depth)]))[0]
        predicted = 255 * covered / (1 + each)
        assert predicted * depth == pytest.approx(drafted, rel=0.1)
        assert predicted * each == pytest.approx(accepted, rel=0.1)


def test_log_odds_of_certain_shares_are_finite() -> None:
    shares = np.array([0.0, 0.3, 1.0])
    assert np.isfinite(logit(shares)).all()
    assert share_of(logit(shares))[1] == pytest.approx(0.3)
