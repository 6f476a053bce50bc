"""Whole studies on fake servers whose truth is known: the verdict must be the right one.

The servers differ in `threads`, which changes nothing by itself: what a test plants is all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def run(work: Path, tuner: Callable[..., Any], study_yaml: Callable[..., str]) -> Run:
    """Run a study to its end; typer's result and the JSON document."""

    def go(behaviour: dict[str, Any], threads: list[int], code: int = 0, **sections: Any) -> Any:
        counted = work / "launches"
        counted.mkdir(exist_ok=True)
        common = {"step_ms": 10, "answer_tokens": 8, "state_dir": str(counted), **behaviour}
        parameter = {"flag": "threads", "choices": threads}
        text = study_yaml(
            engine={"behaviour": common}, space={"parameters": {"threads": parameter}}, **sections
        )
        (work / "demo.yaml").write_text(text)
        result = tuner("run", "demo.yaml", "--json")
        assert result.exit_code == code, result.stderr
        return result, json.loads(result.stdout) if result.stdout else {}

    return go


def planted(threads: int, **then: Any) -> dict[str, Any]:
    return {"when": {"threads": [threads]}, "then": then}


def trials_by_threads(document: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {t["params"]["threads"]: t for t in document["trials"] if t["params"]}


def test_a_machine_that_gets_faster_recommends_nothing(run: Run) -> None:
    """Half a percent per launch: whatever runs later looks better, in an odd number of rounds."""
    _, document = run(
        {"drift_per_launch": -0.005},
        [2, 3],
        search={"baseline_every": 1},
        confirm={"finalists": 1, "rounds": 3, "max_rounds": 3},
    )
    assert document["recommendation"]["verdict"] == "keep_baseline"


def test_a_true_winner_on_a_machine_that_heats_up(run: Run) -> None:
    """A tenth faster, while every launch is 3 % slower than the one before. Whether two rounds
    prove it depends on the machine the test runs on; that the estimate is right does not."""
    faster = planted(3, step_ms=20 / 1.1, ttft_ms=2 / 1.1)
    result, document = run(
        {"step_ms": 20, "drift_per_launch": 0.03, "overrides": [faster]},
        [2, 3, 4],
        search={"sampler": "grid", "baseline_every": 1},
    )
    found, winner = document["recommendation"], trials_by_threads(document)[3]
    (finalist,) = found["finalists"]
    assert finalist["trial"] == winner["number"]
    assert finalist["ratio"] == pytest.approx(1.10, abs=0.05)
    assert 0.99 * finalist["low"] <= 1.10 <= 1.01 * finalist["high"]
    assert found["trial"] == (winner["number"] if finalist["low"] > 1 else 0)
    assert "warning: the baseline drifts by -" in result.stderr
    shifts = [t["drift"] for t in document["trials"] if t["params"]]
    assert shifts == sorted(shifts, reverse=True), "the machine slowed down from trial to trial"
    for threads, truth in {2: 1.0, 3: 1.1, 4: 1.0}.items():
        ratio = trials_by_threads(document)[threads]["vs_baseline"]
        assert ratio == pytest.approx(truth, abs=0.06)


def test_a_host_on_which_nothing_can_be_told_apart_stops_the_study(run: Run) -> None:
    heating = {"drift_per_launch": 0.25}
    result, _ = run(heating, [2, 3, 4], code=3, search={"baseline_every": 1})
    assert "this host is unfit to compare servers: " in result.stderr
    assert "search.keep_going measures in spite of it." in result.stderr


def test_fast_failures_and_cached_repeats_win_nothing(run: Run) -> None:
    _, document = run(
        {
            "ttft_ms": 60,
            "cache_speedup": 10.0,
            "overrides": [planted(3, reject_share=0.5)],
        },
        [2, 3],
    )
    failing = trials_by_threads(document)[3]
    assert (failing["state"], failing["failure"]) == ("failed", "request_errors")
    assert failing["vs_baseline"] is None
    assert document["recommendation"]["verdict"] == "keep_baseline"
    assert all(t["metrics"]["ttft_p50_ms"] > 55 for t in document["trials"] if t["metrics"])


def test_throughput_that_halves_in_every_launch_is_reported_and_wins_nothing(run: Run) -> None:
    _, document = run(
        {"slow_from": 20, "slow_after_factor": 2.0},
        [2],
        workload={"blocks": 3, "block_size": 10, "held_out": 10},
    )
    assert document["recommendation"]["verdict"] == "keep_baseline"
    said = [warning for t in document["trials"] for warning in t["warnings"]]
    assert any("slower from the first third" in w or "two groups" in w for w in said), said


def test_answers_that_change_with_speculation_are_never_recommended(run: Run) -> None:
    """Twice as fast, with four prompts and three rounds; the control is exact."""
    _, document = run(
        {"overrides": [planted(2, garbage=True, garbage_speedup=2.0)]},
        [2],
        confirm={"finalists": 1, "rounds": 3, "max_rounds": 3},
        fidelity={"compare": "greedy_text"},
    )
    found = document["recommendation"]
    assert found["verdict"] == "keep_baseline"
    assert found["finalists"][0]["low"] > 1.2, "by speed alone it would have won"
    assert any("changes the answers (output_mismatch): " in text for text in found["reasons"])
