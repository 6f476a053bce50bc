"""What a new trial may know of the earlier ones."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tuner.args import ServerArgs
from tuner.search.history import History, differing
from tuner.store.record import ArgsRecord


@pytest.fixture
def history(objective, trial) -> History:
    records = [
        trial(0, "baseline", (100.0, 110.0), vs_baseline=1.0),
        trial(1, speeds=(130.0, 143.0), vs_baseline=1.3),
        trial(2, "failed", failure="out_of_memory", value=None, vs_baseline=None),
        trial(3, "failed", failure="interrupted", value=None, vs_baseline=None),
        trial(4, "infeasible", failure="infeasible", value=None, vs_baseline=None),
        trial(5, speeds=(150.0, 160.0), vs_baseline=1.5, constraints={"ttft": 0.2}),
        trial(6, "pruned", (80.0,), vs_baseline=0.8),
    ]
    return History(objective, records)


def test_the_best_is_feasible_and_complete(history: History) -> None:
    best = history.best()
    assert best is not None
    assert best.number == 1, "trial 5 breaks a constraint, trial 6 was pruned"


def test_launches_are_what_was_really_started(history: History) -> None:
    assert history.launches == 6


def test_the_same_server_is_never_launched_twice(history: History, trial) -> None:
    args = ServerArgs(flags={"speculative-num-steps": 3})
    assert history.twin_of(args) is None
    history.add(trial(7, digest=args.digest))
    assert history.twin_of(args).number == 7


@pytest.mark.parametrize(
    ("state", "failure", "stands"),
    [
        ("pruned", None, True),
        ("infeasible", "infeasible", True),
        ("failed", "out_of_memory", True),
        ("failed", "died", True),
        ("failed", "interrupted", False),
        ("failed", "port_in_use", False),
        ("failed", "unexpected", False),
    ],
)
def test_only_a_fault_of_the_server_itself_stands(history, trial, state, failure, stands) -> None:
    args = ServerArgs(flags={"steps": 9})
    history.add(trial(9, state, digest=args.digest, failure=failure))
    assert (history.twin_of(args) is not None) is stands


def test_equal_effective_values_make_a_twin_only_where_the_engine_reports_the_flag(
    history, trial
) -> None:
    history.add(
        trial(8, effective_digest="same", requested_args=ArgsRecord(flags={"draft-tokens": 8}))
    )
    other = ServerArgs(flags={"draft-tokens": 4})
    assert history.effective_twin(other, "same", {"draft-tokens", "steps"}).number == 8
    assert history.effective_twin(other, "same", {"steps"}) is None
    assert history.effective_twin(other, "", {"draft-tokens"}) is None
    ring = ServerArgs(other.flags, {"NCCL_ALGO": "Ring"})
    assert history.effective_twin(ring, "same", {"draft-tokens", "steps"}) is None


def test_baselines_are_pooled_and_tell_the_launch_noise(history, trial) -> None:
    assert history.baseline_blocks() == pytest.approx((100.0, 110.0))
    assert history.launch_noise().df == 0
    history.add(trial(7, "baseline", (110.0, 121.0)))
    assert history.baseline_blocks() == pytest.approx((math.sqrt(11000), math.sqrt(13310)))
    assert history.launch_noise().sd == pytest.approx(math.log(1.1) / math.sqrt(2), rel=0.01)
    assert history.baseline_metrics() == {"output_tokens_per_s": pytest.approx(110.25)}


def test_failures_in_a_row_end_at_the_last_success(history, trial) -> None:
    assert history.last_failures() == []
    history.add(trial(7, "failed", failure="died"))
    history.add(trial(8, "reused"))
    history.add(trial(9, "failed", failure="died"))
    assert [record.number for record in history.last_failures()] == [9, 7]


def drifting(objective, trial, slope: float) -> History:
    """Baseline at launches 0, 2, 4, 6; two equal servers and one a tenth faster between."""
    gains = {1: 1.0, 3: 1.1, 5: 1.0}
    records = []
    for number in range(7):
        speed = 100.0 * math.exp(slope * number) * gains.get(number, 1.0)
        state = "complete" if number in gains else "baseline"
        records.append(trial(number, state, (speed, 1.1 * speed), vs_baseline=speed / 100.0))
    return History(objective, records)


@pytest.mark.parametrize("slope", [-0.02, 0.02])
def test_drift_is_taken_out_of_what_was_measured_between_baselines(
    objective, trial, slope
) -> None:
    history = drifting(objective, trial, slope)
    changed = history.settle()
    assert {r.number: round(r.vs_baseline, 6) for r in changed} == {1: 1.0, 3: 1.1, 5: 1.0}
    assert [round(math.log1p(r.drift) / slope) for r in changed] == [-2, 0, 2]
    assert history.ranked()[0].number == 3
    assert history.settle() == [], "what is settled stays"
    assert history.launch_noise().sd == pytest.approx(0.0, abs=1e-9)


def test_a_reused_trial_is_settled_with_its_twin(objective, trial) -> None:
    history = drifting(objective, trial, -0.02)
    history.add(trial(8, "reused", twin_of=3, vs_baseline=1.04))
    history.add(trial(9, "reused", twin_of=77, vs_baseline=1.04))
    changed = {record.number: record for record in history.settle()}
    assert changed[8].vs_baseline == changed[3].vs_baseline
    assert changed[8].drift == changed[3].drift
    assert 9 not in changed


def test_a_drift_that_was_chance_is_taken_back(objective, trial) -> None:
    history = drifting(objective, trial, -0.02)
    history.settle()
    for number, speed in ((10, 100.0), (11, 101.0), (12, 99.0), (13, 100.0)):
        history.add(trial(number, "baseline", (speed, 1.1 * speed)))
    assert not history.sentinels().is_drifting
    changed = {record.number: record for record in history.settle()}
    assert changed.keys() == {1, 3, 5}
    assert [record.drift for record in changed.values()] == [None, None, None]
    pooled = history.baseline_blocks()
    assert changed[1].vs_baseline == pytest.approx(100 * math.exp(-0.02) / pooled[0])
    assert history.settle() == []


def test_the_next_trial_is_compared_with_the_baseline_of_its_time(objective, trial) -> None:
    history = drifting(objective, trial, -0.02)
    assert history.baseline_blocks()[0] == pytest.approx(100 * math.exp(-0.02 * 7))
    assert history.baseline_blocks(1)[0] == pytest.approx(100 * math.exp(-0.02))


def test_how_far_the_machine_was_from_its_usual_level(objective, trial) -> None:
    history = drifting(objective, trial, -0.02)
    apart = history.shift() - history.shift(history.records[3])
    assert apart == pytest.approx(-0.02 * (7 - 3))
    history.add(trial(7, "reused", twin_of=1))
    assert history.shift() - history.shift(history.records[3]) == pytest.approx(apart)
    assert drifting(objective, trial, 0.0).shift() == 0.0


def test_drift_is_that_of_the_machine_whatever_is_optimised(objective, trial) -> None:
    growing = drifting(objective, trial, 0.02)
    assert growing.drift_at(7) == pytest.approx(math.expm1(0.02 * 4)), "more tokens: faster"
    latency = History(replace(objective, maximize=False), growing.records)
    assert latency.drift_at(7) == pytest.approx(math.expm1(-0.02 * 4)), "more seconds: slower"
    assert drifting(objective, trial, 0.0).drift_at(7) is None


def test_a_steady_machine_corrects_nothing(objective, trial) -> None:
    history = drifting(objective, trial, 0.0)
    before = list(history.records)
    assert history.settle() == []
    assert history.records == before


def test_launches_since_the_baseline(history: History, trial) -> None:
    assert history.since_baseline == 5
    history.add(trial(7, "baseline"))
    assert history.since_baseline == 0


def test_the_first_baseline_stays_what_trials_are_compared_with(objective, trial) -> None:
    history = History(objective)
    first, second = object(), object()
    history.take(trial(1), second)
    assert history.baseline is None
    history.take(trial(0, "baseline"), first)
    history.take(trial(2, "baseline"), second)
    assert history.baseline is first
    assert [record.number for record in history.records] == [1, 0, 2]
    assert [record.number for record in history.baselines] == [0, 2]


def test_what_is_learned_later_replaces_its_trial_alone(history: History, trial) -> None:
    before = list(history.records)
    history.replace(before[1].model_copy(update={"cycle": {"draft": 0.1}}))
    assert history.records[1].cycle == {"draft": 0.1}
    assert history.records[:1] + history.records[2:] == before[:1] + before[2:]
    history.replace(trial(99))
    assert len(history.records) == len(before)


def test_the_best_are_ranked_by_their_ratio(objective, trial) -> None:
    ratios = {1: 1.2, 2: 1.5, 3: None, 4: 1.4, 5: 0.9}
    history = History(objective, [trial(n, vs_baseline=ratio) for n, ratio in ratios.items()])
    assert [record.number for record in history.ranked()] == [2, 4, 1, 5]
    assert History(objective).best() is None


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (({"a": 1}, {}), ({"a": 1}, {}), set()),
        (({"a": 1}, {}), ({"a": 2, "b": 3}, {}), {"a", "b"}),
        (({}, {"X": "1"}), ({}, {"X": "2"}), {"env:X"}),
        (({}, {"X": None}), ({}, {}), {"env:X"}),  # taken away is not the same as not touched
    ],
)
def test_in_what_two_requests_differ(trial, one, other, differ) -> None:
    record = trial(1, requested_args=ArgsRecord(flags=other[0], env=other[1]))
    assert differing(ServerArgs(*one), record) == differ
