"""Levers at the edge of what a clock says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.insight.levers import _slowdown
from tuner.model.clock import Clock


def ground(*seconds: float) -> Any:
    clock = Clock(np.array(seconds), np.zeros((5, 5)), 0.1)
    steps = SimpleNamespace(verified=3.0, passes=3.0, drafting=1.0)
    return SimpleNamespace(clock=clock, steps=steps)


@pytest.mark.parametrize(
    ("seconds", "slowdown"),
    [((0, 1, 0, 0, 0), 1.0), ((0, 1, 0, 1, 0), 7 / 4), ((0, 0, 0, 0, 0), 1.0)],
)
def test_a_clock_that_says_nothing_of_a_step_changes_nothing(
    seconds: tuple[float, ...], slowdown: float
) -> None:
    """A drawn clock may be all zeros: nothing is divided by it."""
    found = _slowdown(ground(*seconds), verified=6.0, passes=6.0)
    assert found == pytest.approx(np.full(len(found), slowdown))
    assert np.all(found > 0)
