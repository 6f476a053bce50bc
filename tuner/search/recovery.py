"""Owns bringing raw files, our tables and Optuna back into step, and ending dead trials.

Raw files are the truth, then our tables, then Optuna: each is completed from the one before.
Runs under the run lock, before anything is launched.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.args import Params
from tuner.errors import FailureKind, StoreError
from tuner.search.lattice import distributions
from tuner.search.telling import attributes, tell_record, telling_of
from tuner.search.workers import lost_owners
from tuner.space import SearchSpace
from tuner.store.database import Store
from tuner.store.faults import persist
from tuner.store.optuna_trials import optuna_trials
from tuner.store.owner import Owner, current_owner
from tuner.store.record import TrialRecord
from tuner.store.results import ResultsFolder


def repair(
    study: Study, store: Store, results: ResultsFolder, name: str, space: SearchSpace
) -> list[str]:
    """Complete the tables from the files and Optuna from the tables, then end dead trials.

    Returns:
        What was done, one line each.
    """
    notes = list(_restore_tables(store, results, name))
    notes += _restore_optuna(study, store.trials(name), space)
    notes += end_dead_trials(study, store, results, name)
    return notes


def _restore_tables(store: Store, results: ResultsFolder, name: str) -> Iterator[str]:
    stored = {record.number for record in store.trials(name)}
    for number in results.trial_numbers():
        if number not in stored:
            yield _restore_trial(store, results, name, number)
    kept = {launch.order for launch in store.confirmations(name)}
    for launch in results.confirmations():
        if launch.order not in kept:
            store.save_confirmation(name, launch, results.read_confirm_blocks(launch.order))
            yield f"confirmation launch {launch.order} was read back from its folder"


def _restore_trial(store: Store, results: ResultsFolder, name: str, number: int) -> str:
    folder = results.trial_folder(number)
    try:
        record = results.read_trial(number)
    except StoreError as error:
        results.set_aside(number)
        return f"trial {number} cannot be read back and counts as interrupted: {error.message}"
    assert record is not None
    try:
        store.save_trial(name, record, results.read_blocks(number))
    except StoreError as error:
        store.save_trial(name, record)
        return f"trial {number} was read back from {folder} without its blocks: {error.message}"
    return f"trial {number} was read back from {folder}"


def _restore_optuna(study: Study, records: list[TrialRecord], space: SearchSpace) -> Iterator[str]:
    for record in records:
        trials = optuna_trials(study)
        if record.number >= len(trials):
            for missing in range(len(trials), record.number):
                persist(partial(study.add_trial, _lost_trial()), f"trial {missing}")
            added = _finished_trial(record, space)
            persist(partial(study.add_trial, added), f"trial {record.number}")
            yield f"trial {record.number} was added to Optuna's study again"
        elif not trials[record.number].state.is_finished():
            _catch_up(study, trials[record.number], record, space)
            tell_record(study, record.number, record)
            yield f"trial {record.number} was finished but Optuna had not been told"


def _catch_up(study: Study, trial: FrozenTrial, record: TrialRecord, space: SearchSpace) -> None:
    """Bring a trial that waits or runs to where it was when its record was written."""
    storage, where = study._storage, f"trial {record.number}"
    if trial.state is TrialState.WAITING:
        persist(
            partial(storage.set_trial_state_values, trial._trial_id, TrialState.RUNNING), where
        )
    for name, (value, known) in _known_params(record, space).items():
        if name not in trial.params:
            internal = known.to_internal_repr(value)
            persist(
                partial(storage.set_trial_param, trial._trial_id, name, internal, known), where
            )


def _known_params(
    record: TrialRecord, space: SearchSpace
) -> dict[str, tuple[Any, BaseDistribution]]:
    """The parameters of a record that the space has, with their distributions."""
    found = {}
    for name, known in distributions(space).items():
        value = record.params.get(name)
        if name in record.params and _holds(known, value):
            found[name] = (value, known)
    return found


def _holds(known: BaseDistribution, value: Any) -> bool:
    try:
        return bool(known._contains(known.to_internal_repr(value)))
    except (ValueError, TypeError):
        return False


def _lost_trial() -> FrozenTrial:
    return create_trial(
        state=TrialState.FAIL, user_attrs={"reason": "lost with the database before it finished"}
    )


def _finished_trial(record: TrialRecord, space: SearchSpace) -> FrozenTrial:
    telling = telling_of(record)
    known = _known_params(record, space)
    return create_trial(
        state=telling.state,
        value=telling.value,
        params={name: value for name, (value, _) in known.items()},
        distributions={name: distribution for name, (_, distribution) in known.items()},
        user_attrs=attributes(record),
        constraints=telling.constraints,
    )


# ---- trials whose owner died ------------------------------------------------------------------


def end_dead_trials(
    study: Study, store: Store, results: ResultsFolder, name: str
) -> Iterator[str]:
    """End every running trial whose process is gone and queue its point once more.

    Returns:
        What was done or left alone, one line per running trial.
    """
    lost = lost_owners(store, name)
    running = optuna_trials(study, TrialState.RUNNING)
    for trial in running:
        owner = owner_of(trial)
        if not is_dead(owner, is_shared=store.is_shared, lost=lost):
            who = owner.label if owner else "an unknown process"
            yield f"trial {trial.number} is still run by {who} and was left alone"
            continue
        reason = f"the tuner that ran it ended ({owner.label if owner else 'unknown'})"
        record = interrupted_record(trial.number, point_of(trial), reason)
        results.write_trial(record)
        store.save_trial(name, record)
        tell_record(study, trial.number, record)
        again = requeue(study, trial.number)
        yield f"trial {trial.number} was interrupted{' and is queued again' if again else ''}"


def owner_of(trial: FrozenTrial) -> Owner | None:
    """The process that runs a trial; None when it does not say."""
    data = trial.user_attrs.get("owner")
    try:
        return Owner.from_json(data) if isinstance(data, dict) else None
    except (KeyError, TypeError, ValueError):
        return None


def is_dead(
    owner: Owner | None, *, is_shared: bool, lost: Collection[Owner] = frozenset()
) -> bool:
    """Whether a running trial's owner is gone.

    On a database of one tuner the run lock is proof: whoever does not live here is gone, also a
    container with another host name. On a shared one only what this machine can see counts, and
    `lost`: workers elsewhere that have not been seen for long.
    """
    if owner is None:
        return not is_shared
    if owner == current_owner(os.getpid()):
        return not is_shared  # an earlier run of this very process, which gave the lock back
    liveness = owner.liveness()
    return liveness == "dead" or (liveness == "unknown" and (not is_shared or owner in lost))


def interrupted_record(number: int, params: Params, reason: str) -> TrialRecord:
    """The record of a trial that was cut short."""
    now = datetime.now(UTC).isoformat()
    return TrialRecord(
        number=number,
        state="failed",
        failure=FailureKind.INTERRUPTED.label,
        reason=reason,
        params=dict(params),
        finished_utc=now,
    )


def unknown_point(number: int, params: Params, reason: str) -> TrialRecord:
    """The record of a queued point that the space does not have."""
    kind = FailureKind.INFEASIBLE.label
    return TrialRecord(
        number=number, state="infeasible", failure=kind, reason=reason, params=dict(params)
    )


def requeue(study: Study, number: int) -> bool:
    """Queue an interrupted trial's point once more; False when it had its second chance."""
    trial = optuna_trials(study)[number]
    if trial.user_attrs.get("retry_of") is not None:
        return False
    if any(t.user_attrs.get("retry_of") == number for t in optuna_trials(study)):
        return False
    attrs: dict[str, Any] = {"retry_of": number}
    kept = ("baseline", "digest", "queued")
    attrs |= {name: trial.user_attrs[name] for name in kept if name in trial.user_attrs}
    params = point_of(trial)
    persist(lambda: study.enqueue_trial(params, user_attrs=attrs), f"trial {number}")
    return True


def point_of(trial: FrozenTrial) -> dict[str, Any]:
    """The point a trial runs, also when it ended before all of it was stored."""
    fixed = trial.system_attrs.get("fixed_params", {})
    return {**fixed, **trial.params}
