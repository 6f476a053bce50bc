"""One trial: whatever a server does ends in its record, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.errors import FailureKind, HostError, Interrupted, TrialFailure
from tuner.measure.records import Acceptance
from tuner.search import launching
from tuner.search.history import History
from tuner.search.pruning import never_prune
from tuner.search.recording import TrialPlan
from tuner.search.trial_runner import run_trial
from tuner.store.record import PruneDecision, TrialRecord

BASE = {"seconds": [1.0, 2.0]}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "RETRY_PAUSE_S", 0.0)


def plan(number: int, tmp_path: Path, steps: int | None = None, **more: Any) -> TrialPlan:
    flags = {} if steps is None else {"steps": steps}
    return TrialPlan(number, dict(flags), ServerArgs(flags), tmp_path, steps is None, **more)


def run(bench: Any, history: History, a_plan: TrialPlan, judge: Any = never_prune) -> TrialRecord:
    outcome = run_trial(bench, a_plan, history, judge)
    history.take(outcome.record, outcome.measurement)
    return outcome.record


@pytest.fixture
def measured(bench, objective, tmp_path):
    """A bench with a script, and a history that holds a measured baseline."""

    def make(**script: Any):
        named = {name.replace("_", "-"): step for name, step in script.items()}
        made = bench({"trial-0": BASE, **named})
        history = History(objective)
        run(made, history, plan(0, tmp_path))
        return made, history

    return make


def test_a_trial_is_compared_with_the_baseline_block_by_block(measured, tmp_path) -> None:
    made, history = measured(trial_1={"seconds": [0.5, 1.0]})
    record = run(made, history, plan(1, tmp_path, 3))
    assert history.records[0].state == "baseline"
    assert history.records[0].vs_baseline == pytest.approx(1.0)
    assert record.state == "complete"
    assert record.vs_baseline == pytest.approx(2.0)
    assert record.load_points[0].per_block["output_tokens_per_s"] == pytest.approx([200, 100] * 2)
    assert record.half_width == pytest.approx(0.0, abs=1e-9), "twice as fast in every block"
    assert history.records[0].half_width > 10, "blocks of one and of two seconds"
    assert record.requested_args.flags == {"steps": 3}
    assert record.load_points[0].requests == 8


def test_what_was_not_measured_cannot_be_compared(measured, objective, tmp_path) -> None:
    """The engine reports nothing about drafting."""
    made, history = measured(trial_1={"seconds": [0.5, 1.0]})
    unmeasured = replace(made, objective=replace(objective, metric="acceptance_rate"))
    record = run(unmeasured, history, plan(1, tmp_path, 3))
    assert (record.state, record.failure) == ("failed", "implausible")
    assert record.reason == "acceptance_rate must be measured to be compared, got none"
    assert record.value is None


@pytest.mark.parametrize(
    ("kind", "state"),
    [(FailureKind.OUT_OF_MEMORY, "failed"), (FailureKind.DIED, "failed")],
)
def test_a_failed_trial_never_has_a_value(measured, tmp_path, kind, state) -> None:
    made, history = measured(trial_1=TrialFailure(kind, "it said so", hint="do this"))
    record = run(made, history, plan(1, tmp_path, 3))
    assert (record.state, record.failure, record.reason) == (state, kind.label, "it said so")
    assert record.value is None
    assert record.vs_baseline is None
    assert record.hint == "do this"
    assert made.runner.played == ["trial-0", "trial-1"], "not launched again"


def test_a_fault_of_the_host_is_tried_again_and_bounded(measured, tmp_path) -> None:
    taken = TrialFailure(FailureKind.PORT_IN_USE, "address already in use")
    made, history = measured(trial_1=[taken, taken, {"seconds": [1.0]}])
    record = run(made, history, plan(1, tmp_path, 3))
    assert record.state == "complete"
    assert made.runner.played.count("trial-1") == 3
    assert record.warnings == ["again after port_in_use: address already in use"]
    made, history = measured(trial_1=[taken] * 4)
    record = run(made, history, plan(1, tmp_path, 3))
    assert record.failure == "port_in_use"
    assert made.runner.played.count("trial-1") == 3


def test_the_same_server_is_reused_not_launched(measured, tmp_path) -> None:
    made, history = measured(trial_1={"seconds": [0.5]})
    first = run(made, history, plan(1, tmp_path, 3))
    again = run(made, history, plan(2, tmp_path, 3))
    assert (again.state, again.twin_of, again.value) == ("reused", 1, first.value)
    assert again.number == 2
    assert again.seconds.launch == 0.0
    assert again.reason == "same server as trial 1"
    assert history.launches == 2


def test_servers_that_turn_out_equal_are_one_server(measured, tmp_path) -> None:
    effective = {"steps": 4}
    made, history = measured(
        trial_1={"seconds": [0.5], "effective": effective},
        trial_2={"seconds": [0.5], "effective": effective},
    )
    run(made, history, plan(1, tmp_path, 4))
    record = run(made, history, plan(2, tmp_path, 8))
    assert (record.state, record.twin_of) == ("reused", 1)


def test_a_broken_rule_costs_no_launch(measured, tmp_path) -> None:
    made, history = measured()
    record = run(made, history, plan(1, tmp_path, 3, broken_rules=("draft 8 > 3",)))
    assert (record.state, record.reason) == ("infeasible", "draft 8 > 3")
    assert made.runner.played == ["trial-0"]


def test_a_pruned_trial_stops_measuring_and_keeps_what_it_has(measured, tmp_path) -> None:
    decision = PruneDecision(
        after_block=2, blocks=4, ratio=0.5, upper=0.6, margin=0.01, reference=0
    )

    def judge(values, history):
        return decision if len(values) == 2 else None

    made, history = measured(trial_1={"seconds": [2.0, 4.0]})
    outcome = run_trial(made, plan(1, tmp_path, 7), history, judge)
    assert outcome.record.state == "pruned"
    assert outcome.record.prune == decision
    assert len(outcome.blocks) == 2
    assert outcome.record.vs_baseline == pytest.approx(0.5)


def accepted(steps: int, drafted: int, taken: int) -> Acceptance:
    return Acceptance(1.0 + taken / max(steps, 1), None, (), steps, drafted, taken, "test")


def test_a_draft_model_that_never_drafts_is_a_failure(measured, tmp_path) -> None:
    made, history = measured(trial_1={"seconds": [1.0], "acceptance": accepted(400, 0, 0)})
    record = run(made, history, plan(1, tmp_path, 3))
    assert (record.state, record.failure) == ("failed", "draft_inactive")


def test_drafting_that_is_never_accepted_is_measured(measured, tmp_path) -> None:
    made, history = measured(trial_1={"seconds": [1.0], "acceptance": accepted(400, 1200, 0)})
    record = run(made, history, plan(1, tmp_path, 3))
    assert record.state == "complete"
    assert record.acceptance_length == 1.0


def test_synthetic_results_are_marked(measured, tmp_path) -> None:
    made, history = measured(trial_1={"seconds": [0.5]})
    a_plan = TrialPlan(1, {}, ServerArgs({"synthetic": 2.0}), tmp_path)
    assert run(made, history, a_plan).is_synthetic


def test_what_nothing_real_was_launched_for_is_marked(measured, tmp_path) -> None:
    made, history = measured(trial_1={"seconds": [0.5]})
    made.runner.is_simulated = True
    assert run(made, history, plan(1, tmp_path, 3)).is_simulated
    assert not history.records[0].is_simulated


def test_a_fault_of_ours_ends_one_trial_not_the_study(measured, tmp_path) -> None:
    made, history = measured(trial_1=ZeroDivisionError("division by zero"))
    record = run(made, history, plan(1, tmp_path, 3))
    assert (record.failure, record.reason) == (
        "unexpected", "ZeroDivisionError: division by zero",
    )  # fmt: skip


def test_the_user_and_an_unusable_host_end_the_run(measured, tmp_path) -> None:
    made, history = measured(
        trial_1=Interrupted("stopped"),
        trial_2=TrialFailure(FailureKind.NOT_STOPPED, "pid 7 is left", hint="reboot"),
    )
    with pytest.raises(Interrupted):
        run_trial(made, plan(1, tmp_path, 3), history, never_prune)
    with pytest.raises(HostError, match="pid 7 is left") as error:
        run_trial(made, plan(2, tmp_path, 4), history, never_prune)
    assert error.value.hint == "reboot"
