"""The adaptive schedule: JSON and back, and what it means at a batch size."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.engines.sglang.adaptive import (
    parse_adaptive,
    render_adaptive,
    starting_steps,
    steps_at,
)

SCHEDULES = st.dictionaries(
    st.integers(1, 512), st.sets(st.integers(0, 9), min_size=1).map(sorted), min_size=1, max_size=6
)


@given(SCHEDULES)
def test_a_schedule_comes_back(schedule: dict[int, list[int]]) -> None:
    found = parse_adaptive(render_adaptive(schedule))
    assert found == {batch: tuple(steps) for batch, steps in sorted(schedule.items())}
    assert starting_steps(found) in {step for steps in found.values() for step in steps}


def test_pinned_steps_are_lists_of_one() -> None:
    text = render_adaptive({16: 1, 1: 5, 4: 3, 48: 0})
    assert json.loads(text) == {
        "1": {"candidate_steps": [5]}, "4": {"candidate_steps": [3]},
        "16": {"candidate_steps": [1]}, "48": {"candidate_steps": [0]},
    }  # fmt: skip
    schedule = parse_adaptive(text)
    assert [steps_at(schedule, batch) for batch in (1, 3, 4, 100)] == [(5,), (5,), (3,), (0,)]
    assert steps_at({8: (1,)}, 2) == (1,)
    assert starting_steps(schedule) == 3


def test_controller_settings_are_read_over() -> None:
    slots = '"1": {"candidate_steps": [1, 3]}, "8": {"candidate_steps": [0], "ema_alpha": 0.1}'
    assert parse_adaptive(f'{{"ema_alpha": 0.3, {slots}}}') == {1: (1, 3), 8: (0,)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "must be a JSON object"),
        ("{}", "at least one batch size"),
        ('{"x": {}}', "x must be a batch size or a controller setting"),
        ('{"1": {}}', "slot 1 must have a list candidate_steps"),
        ('{"candidate_steps": [1], "1": {}}', "candidate_steps must be a batch size or a cont"),
        ('{"1": {"candidate_steps": []}}', "slot 1 must hold steps"),
        ('{"1": {"candidate_steps": [-1]}}', "slot 1 must hold steps"),
        ('{"1": {"candidate_steps": [true]}}', "slot 1 must hold steps"),
        ('{"0": {"candidate_steps": [1]}}', "batch sizes must be at least 1"),
        ("{", "Expecting"),
    ],
)
def test_other_files_are_refused_with_the_slot(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_adaptive(text)


def test_an_empty_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one batch size"):
        render_adaptive({})
    with pytest.raises(ValueError, match="steps >= 0"):
        render_adaptive({1: -2})
