"""Measuring servers again: rounds, the interval of a further launch, answers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.errors import EngineError, FailureKind, TrialFailure
from tuner.search.remeasure import (
    Contender,
    answers_by_prompt,
    effective_differences,
    remeasure,
    same_answers,
    same_speed,
    series_of,
)

RECORD = {"server": [[100.0, 200.0], [102.0, 204.0], [98.0, 196.0]], "baseline": [[50.0, 99.0]]}


def contenders() -> list[Contender]:
    return [Contender(0, "baseline", ServerArgs()), Contender(1, "bundle", ServerArgs({"s": 1}))]


def play(**seconds: Any) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in seconds.items()}


def test_rounds_alternate(bench: Any, tmp_path: Path) -> None:
    slow, fast = {"seconds": [1.0]}, {"seconds": [0.5]}
    made = bench(play(baseline_0=slow, bundle_0=fast, baseline_1=slow, bundle_1=fast))
    found = remeasure(made, contenders(), 2, tmp_path)
    assert made.runner.played == ["baseline-0", "bundle-0", "bundle-1", "baseline-1"]
    assert series_of(found, 1) == [[pytest.approx(200.0)] * 3] * 2
    assert series_of(found, 0) == [[pytest.approx(100.0)] * 3] * 2
    texts = answers_by_prompt([each.answers for each in found])
    assert len(texts) == 6
    assert {len(each) for each in texts.values()} == {4}


def test_a_server_that_fails_ends_it_in_its_own_words(bench: Any, tmp_path: Path) -> None:
    failure = TrialFailure(FailureKind.OUT_OF_MEMORY, "CUDA out of memory", hint="Lower it.")
    made = bench(play(baseline_0=failure))
    with pytest.raises(EngineError, match="baseline: must start and answer, got out_of_memory"):
        remeasure(made, contenders(), 1, tmp_path)


def test_the_same_speed_lies_in_the_interval() -> None:
    found = same_speed([[101.0, 202.0]], RECORD, "maximize")
    assert found.ratio == pytest.approx(1.01, abs=0.001)
    assert found.low < 1 < found.high
    assert found.sd == pytest.approx(0.02, abs=0.001)


@pytest.mark.parametrize(("direction", "ratio"), [("maximize", 0.7), ("minimize", 1 / 0.7)])
def test_another_speed_does_not(direction: str, ratio: float) -> None:
    found = same_speed([[70.0, 140.0]], RECORD, direction)
    assert found.ratio == pytest.approx(ratio, abs=0.01)
    assert (found.high < 1) is (direction == "maximize")
    assert (found.low > 1) is (direction == "minimize")


def test_launches_that_came_out_alike_promise_no_more_than_a_host_can_keep() -> None:
    alike = {"server": [[100.0]] * 4}
    found = same_speed([[100.5]], alike, "maximize")
    assert found.low < 1 < found.high


def test_more_launches_narrow_it() -> None:
    one = same_speed([[100.0, 200.0]], RECORD, "maximize")
    four = same_speed([[100.0, 200.0]] * 4, RECORD, "maximize")
    assert four.half_width < one.half_width


def test_without_two_recorded_launches_nothing_is_known() -> None:
    found = same_speed([[100.0]], {"server": [[100.0]]}, "maximize")
    assert math.isnan(found.ratio)
    assert found.high == math.inf


def test_only_values_that_both_report_can_differ() -> None:
    before, now = {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "d": 9}
    assert effective_differences(before, now) == [("b", 2, 5)]


def test_answers_are_held_to_what_the_baseline_repeats(bench: Any, tmp_path: Path) -> None:
    made = bench(play(bundle_0={"seconds": [1.0], "text": "the same answer"}))
    (found,) = remeasure(made, contenders()[1:], 1, tmp_path)
    texts = {record.prompt_id: record.text for record in found.answers}
    same = {name: [text, text] for name, text in texts.items()}
    other = {name: ["x", "x"] for name in texts}
    assert same_answers(same, found.answers, is_strict=True) == (
        True, "6 of 6 answers are identical to the baseline's",
    )  # fmt: skip
    refused = same_answers(other, found.answers, is_strict=False)
    assert refused is not None
    assert not refused[0]
    assert same_answers({}, found.answers, is_strict=False) is None
