"""What a record means to Optuna."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from tuner.errors import FailureKind
from tuner.search.telling import attributes, running_estimate, tell_record, telling_of
from tuner.store.record import PruneDecision, TrialRecord

COMPLETE, PRUNED, FAIL = TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL
DECISION = PruneDecision(after_block=2, blocks=6, ratio=0.8, upper=0.9, margin=0.02, reference=1)


def record(**fields: Any) -> TrialRecord:
    return TrialRecord(**{"number": 0, "state": "complete", "value": 2.0, **fields})


@pytest.mark.parametrize(
    ("fields", "state", "value", "launch"),
    [
        ({}, COMPLETE, 2.0, 0.0),
        ({"state": "baseline"}, COMPLETE, 2.0, 0.0),
        ({"state": "reused", "twin_of": 1}, COMPLETE, 2.0, 0.0),
        ({"state": "pruned", "prune": DECISION}, PRUNED, None, 0.0),
        ({"state": "reused", "prune": DECISION}, PRUNED, None, 0.0),
        ({"state": "infeasible", "value": None}, PRUNED, None, 1.0),
        ({"value": math.nan}, FAIL, None, 0.0),
        ({"value": math.inf}, FAIL, None, 0.0),
        ({"value": None}, FAIL, None, 0.0),
        ({"constraints": {"e == 0": 0.0, "t <= 1": -2.0}}, COMPLETE, 2.0, 0.0),
        ({"constraints": {"e == 0": 0.1}}, PRUNED, None, 0.0),
        ({"constraints": {"e == 0": math.nan}}, PRUNED, None, 0.0),
        ({"state": "baseline", "constraints": {"e == 0": 0.1}}, COMPLETE, 2.0, 0.0),
        ({"state": "reused", "failure": "out_of_memory", "value": None}, PRUNED, None, 1.0),
        ({"state": "failed", "failure": "a_kind_of_version_9", "value": None}, FAIL, None, 0.0),
    ],
)
def test_state_value_and_constraint(
    fields: dict[str, Any], state: TrialState, value: float | None, launch: float
) -> None:
    telling = telling_of(record(**fields))
    assert (telling.state, telling.value) == (state, value)
    assert telling.constraints["launch"] == launch
    assert all(math.isfinite(v) for v in telling.constraints.values())


@pytest.mark.parametrize("kind", list(FailureKind), ids=lambda kind: kind.label)
def test_the_configurations_fault_is_pruned_and_the_hosts_is_fail(kind: FailureKind) -> None:
    telling = telling_of(record(state="failed", failure=kind.label, value=None))
    assert telling.state == (PRUNED if kind.is_config_fault else FAIL)
    assert telling.constraints["launch"] == float(kind.is_config_fault)


@pytest.fixture
def study() -> optuna.Study:
    return optuna.create_study(direction="maximize")


def told(study: optuna.Study, **fields: Any) -> optuna.trial.FrozenTrial:
    number = study.ask().number
    assert tell_record(study, number, record(number=number, **fields), [1.0, 1.5]) == ""
    return study.get_trials()[number]


def test_optuna_holds_value_constraints_attributes_and_curve(study: optuna.Study) -> None:
    trial = told(
        study, constraints={"ttft_p95_ms <= 3": -0.5}, metrics={"output_tokens_per_s": 2.0},
        warnings=["slow disk"], acceptance_length=2.5, is_lossy=True,
    )  # fmt: skip
    assert (trial.state, trial.value) == (COMPLETE, 2.0)
    assert trial.constraints == {"launch": 0.0, "ttft_p95_ms <= 3": -0.5}
    assert trial.intermediate_values == {0: 1.0, 1: 1.5}
    assert trial.user_attrs == {
        "tuner_state": "complete", "tok_s": 2.0, "objective_value": 2.0, "feasible": True,
        "acceptance_length": 2.5, "seconds": 0.0, "warnings": ["slow disk"], "is_lossy": True,
    }  # fmt: skip


def test_a_faster_server_that_breaks_a_constraint_is_not_best(study: optuna.Study) -> None:
    told(study, value=5.0)
    broken = told(study, value=9.0, constraints={"error_rate == 0": 0.2})
    assert study.best_value == 5.0
    assert study._storage.get_best_trial(study._study_id).value == 5.0  # as the dashboard asks
    assert (broken.user_attrs["feasible"], broken.user_attrs["objective_value"]) == (False, 9.0)


def test_telling_twice_is_quiet_and_telling_otherwise_is_noted(study: optuna.Study) -> None:
    told(study)
    assert tell_record(study, 0, record()) == ""
    note = tell_record(study, 0, record(state="pruned"))
    assert note.startswith("trial 0 was ended as COMPLETE by another process")


def test_a_telling_cut_in_the_middle_can_be_repeated(study: optuna.Study) -> None:
    trial = study.ask()
    trial.set_user_attr("tuner_state", "complete")
    trial.set_constraint("launch", 0.0)
    trial.report(1.0, 0)
    assert tell_record(study, 0, record(), [1.0, 1.5]) == ""
    assert study.get_trials()[0].intermediate_values == {0: 1.0, 1: 1.5}


def test_attributes_are_strict_json() -> None:
    found = attributes(record(vs_baseline=math.nan, metrics={"output_tokens_per_s": math.inf}))
    assert "vs_baseline" not in found
    assert "tok_s" not in found


@pytest.mark.parametrize(
    ("values", "reference", "expected"),
    [
        ([110.0, 55.0], [100.0, 50.0], [220.0, 220.0]),  # an easy block is no record
        ([100.0, 25.0], [100.0, 50.0], [200.0, 200.0 / math.sqrt(2)]),
        ([0.0, 50.0], [100.0, 50.0], [200.0]),
        ([110.0], [], []),
    ],
)
def test_the_running_estimate_is_paired_by_block(
    values: list[float], reference: list[float], expected: list[float]
) -> None:
    assert running_estimate(values, reference, 200.0) == pytest.approx(expected)


def test_without_a_reference_nothing_is_estimated() -> None:
    assert running_estimate([1.0], [1.0], None) == []
    assert running_estimate([1.0], [1.0], math.nan) == []


def test_pruned_trials_show_their_estimate_not_their_last_block(
    study: optuna.Study, make_asked: Callable[..., Any]
) -> None:
    number = study.ask().number
    pruned = record(number=number, state="pruned", prune=DECISION)
    tell_record(study, number, pruned, [1.9, 1.7])
    assert study.get_trials()[number].value == 1.7
