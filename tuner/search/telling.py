"""Owns what a finished trial means to Optuna: state, value, constraints, attributes.

A failed trial never has a value. The configuration's fault is told as PRUNED with a violated
constraint, because samplers do not see FAIL and would try the same again; FAIL is the host's.
A trial that breaks an outcome constraint is PRUNED too: the dashboard's best ignores constraints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import Trial, TrialState

from tuner.errors import FailureKind
from tuner.store.faults import persist
from tuner.store.optuna_trials import optuna_trials
from tuner.store.plain import json_safe
from tuner.store.record import TrialRecord

LAUNCH_CONSTRAINT = "launch"
"""Violated by 1 when a server cannot be used, satisfied by every other trial."""


@dataclass(frozen=True, slots=True)
class Telling:
    """What Optuna is told of a trial."""

    state: TrialState
    value: float | None
    constraints: dict[str, float]


def telling_of(record: TrialRecord) -> Telling:
    """State, value and constraints of a record; total."""
    fault = is_config_fault(record)
    broken = {text: _violation(value) for text, value in record.constraints.items()}
    constraints = {LAUNCH_CONSTRAINT: 1.0 if fault else 0.0, **broken}
    if record.state == "failed" and not fault:
        return Telling(TrialState.FAIL, None, constraints)
    if fault or record.state == "pruned" or record.prune is not None:
        return Telling(TrialState.PRUNED, None, constraints)
    if record.value is None or not math.isfinite(record.value):
        return Telling(TrialState.FAIL, None, constraints)
    if record.state != "baseline" and any(value > 0 for value in broken.values()):
        return Telling(TrialState.PRUNED, None, constraints)
    return Telling(TrialState.COMPLETE, record.value, constraints)


def is_config_fault(record: TrialRecord) -> bool:
    """True when launching the same server again would end the same way."""
    if record.state == "infeasible":
        return True
    if not record.failure:
        return False
    try:
        return FailureKind.from_label(record.failure).is_config_fault
    except KeyError:
        return False


def _violation(value: float) -> float:
    return value if math.isfinite(value) else 1.0


def attributes(record: TrialRecord) -> dict[str, Any]:
    """What the dashboard shows beside value and parameters; absent where nothing is known."""
    marks = ("is_synthetic", "is_lossy", "is_simulated")
    found: dict[str, Any] = {
        "tuner_state": record.state,
        "tok_s": record.metrics.get("output_tokens_per_s"),
        "vs_baseline": record.vs_baseline,
        "objective_value": record.value,
        "acceptance_length": record.acceptance_length,
        "ttft_p95_ms": record.metrics.get("ttft_ms_p95", record.metrics.get("ttft_p95_ms")),
        "feasible": not is_config_fault(record)
        and all(value <= 0 for value in record.constraints.values()),
        "failure": record.failure,
        "reason": record.reason or None,
        "digest": record.digest or None,
        "effective_digest": record.effective_digest or None,
        "twin_of": record.twin_of,
        "predicted": record.predicted,
        "pruned_by": record.prune.model_dump() if record.prune else None,
        "seconds": record.seconds.total,
        "warnings": list(record.warnings) or None,
        "started_utc": record.started_utc or None,
        "finished_utc": record.finished_utc or None,
        "fingerprint": record.fingerprint or None,
        "baseline": True if record.state == "baseline" else None,
        **{name: True if getattr(record, name) else None for name in marks},
    }
    safe = {name: json_safe(value) for name, value in found.items()}
    return {name: value for name, value in safe.items() if value is not None}


def tell_record(
    study: Study, number: int, record: TrialRecord, curve: Sequence[float] = ()
) -> str:
    """End a running Optuna trial with what the record says.

    Args:
        study: the Optuna study.
        number: the trial's number.
        record: the finished trial.
        curve: the objective's running estimate after each block, for the dashboard.

    Returns:
        "" when told; otherwise a note that another process had ended the trial already.

    Raises:
        StoreError: the database kept failing.
    """
    where = f"trial {number}"
    trial = persist(lambda: handle(study, number), where)
    telling = telling_of(record)
    try:
        for name, value in attributes(record).items():
            _set_attribute(trial, name, value)
        for name, violation in telling.constraints.items():
            _set_constraint(trial, name, violation)
        for step, estimate in enumerate(curve):
            _report(trial, step, estimate)
        persist(lambda: study.tell(number, telling.value, telling.state), where)
    except (UpdateFinishedTrialError, ValueError):
        return _already_ended(study, number, telling)
    return ""


def handle(study: Study, number: int) -> Trial:
    """A writable handle on a trial by its number."""
    frozen = optuna_trials(study)[number]
    return Trial(study, frozen._trial_id)


def _set_attribute(trial: Trial, name: str, value: Any) -> None:
    persist(lambda: trial.set_user_attr(name, value), f"trial {trial.number}")


def _set_constraint(trial: Trial, name: str, violation: float) -> None:
    if name not in trial.constraints:  # told in part before a crash: the first value stands
        persist(lambda: trial.set_constraint(name, violation), f"trial {trial.number}")


def _report(trial: Trial, step: int, estimate: float) -> None:
    known = optuna_trials(trial.study)[trial.number].intermediate_values
    if step not in known and math.isfinite(estimate):
        persist(lambda: trial.report(estimate, step), f"trial {trial.number}")


def _already_ended(study: Study, number: int, telling: Telling) -> str:
    state = optuna_trials(study)[number].state
    if not state.is_finished():
        raise RuntimeError(f"trial {number} is {state.name} and refused {telling.state.name}")
    if state == telling.state:
        return ""
    return (
        f"trial {number} was ended as {state.name} by another process; its measurement is kept, "
        f"Optuna was not told {telling.state.name}"
    )


def running_estimate(
    values: Sequence[float], reference: Sequence[float], reference_value: float | None
) -> list[float]:
    """The objective's estimate after each block, in its own unit, paired with the reference.

    Blocks differ in their prompts: each is divided by the reference's same block, so that easy
    first blocks do not look like a record. [] without a reference.
    """
    if reference_value is None or not math.isfinite(reference_value):
        return []
    estimates, logs = [], []
    for value, other in zip(values, reference, strict=False):
        if value > 0 and other > 0:
            logs.append(math.log(value / other))
        if logs:
            estimates.append(reference_value * math.exp(sum(logs) / len(logs)))
    return estimates
