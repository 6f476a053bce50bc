"""Counts of a trial, and where the time of a step goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuner.insight.clock import clock_of
from tuner.insight.counts import count_steps, is_lookup
from tuner.insight.cycle import UNTIMED, find_cycle
from tuner.store.record import ArgsRecord, TrialRecord

Make = Callable[..., Any]


def test_counts_of_a_speculative_trial(make_world: Make) -> None:
    world = make_world()
    steps = count_steps(world.trial(1, 3), "c1")
    assert steps is not None
    assert steps.length == pytest.approx(world.length(3), rel=1e-3)
    assert steps.seconds == pytest.approx(world.step(3), rel=1e-3)
    assert (steps.verified, steps.passes, steps.drafting) == (3, 3, 1.0)
    assert 0.8 < steps.decode_share < 1


def test_counts_of_a_baseline(make_world: Make) -> None:
    steps = count_steps(make_world().trial(0, 0), "")
    assert steps is not None
    assert (steps.length, steps.drafting) == (1.0, 0.0)
    assert steps.seconds == pytest.approx(0.010)


def test_a_lookup_has_no_passes(make_world: Make) -> None:
    trial = make_world().trial(1, 3)
    args = ArgsRecord(flags={"spec-type": "ngram-simple", "spec-ngram-mod-n-max": 3})
    trial = trial.model_copy(update={"requested_args": args})
    steps = count_steps(trial, "c1")
    assert is_lookup(trial)
    assert steps is not None
    assert steps.passes == 0


def test_a_trial_without_load_points_cannot_be_counted() -> None:
    assert count_steps(TrialRecord(number=1, state="complete"), "c1") is None


def test_measured_parts_are_taken_as_they_are(make_world: Make) -> None:
    world = make_world()
    timed = {"draft": 0.001, "draft_extend": 0.0005, "verify": 0.009}
    trial = world.trial(1, 3, cycle=timed)
    steps = count_steps(trial, "c1")
    cycle = find_cycle(trial, steps, None, is_alone=True)
    assert cycle is not None
    assert (cycle.draft, cycle.verify, cycle.basis) == (0.0015, 0.009, "measured")
    assert cycle.seconds == pytest.approx(world.step(3), rel=1e-3)
    crowded = find_cycle(trial, steps, None, is_alone=False)
    assert crowded is not None
    assert crowded.other == 0.0


def test_untimed_drafting_is_said(make_world: Make) -> None:
    trial = make_world().trial(1, 3, cycle={"verify": 0.009})
    cycle = find_cycle(trial, count_steps(trial, "c1"), None, is_alone=True)
    assert cycle is not None
    assert cycle.notes == (UNTIMED,)


def test_without_a_clock_there_is_no_cycle(make_world: Make) -> None:
    trial = make_world().trial(1, 3)
    assert find_cycle(trial, count_steps(trial, "c1"), None, is_alone=True) is None
    assert clock_of([]) is None
