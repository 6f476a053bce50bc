"""Owns how an attempt becomes a `TrialRecord`: the one place that fills its fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuner.args import Params, ServerArgs
from tuner.errors import FailureKind, TrialFailure
from tuner.measure.records import Acceptance, LoadPoint, LoadSummary, Measurement
from tuner.measure.statistics import log_ratios, mean_interval
from tuner.redaction import without_secrets
from tuner.search.bench import Bench, ServerRun, blocks_at
from tuner.search.history import History
from tuner.search.local_runner import effective_digest
from tuner.search.model_data import COLUMNS, block_counts
from tuner.store.record import (
    AcceptanceRecord,
    ArgsRecord,
    LoadPointRecord,
    PruneDecision,
    State,
    TrialRecord,
)


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """A chosen trial: its number, point, server, what the search expects of it, and the rules
    that forbid to launch it."""

    number: int
    params: Params
    args: ServerArgs
    folder: Path
    is_baseline: bool = False
    predicted: float | None = None
    broken_rules: tuple[str, ...] = ()


@dataclass(slots=True)
class Attempt:
    """One trial while it runs: the plan, what the launch left so far, the pruner's decision."""

    plan: TrialPlan
    run: ServerRun = field(default_factory=ServerRun)
    decision: PruneDecision | None = None
    twin: TrialRecord | None = None
    started: datetime = field(default_factory=lambda: datetime.now(UTC))


def args_record(args: ServerArgs) -> ArgsRecord:
    """A `ServerArgs` as stored."""
    return ArgsRecord.model_validate(args.to_json())


def acceptance_record(acceptance: Acceptance | None) -> AcceptanceRecord | None:
    """An `Acceptance` as stored."""
    return None if acceptance is None else AcceptanceRecord.model_validate(asdict(acceptance))


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """Only what JSON and a ranking can hold."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


def load_point_record(
    summary: LoadSummary, counts: Mapping[str, list[float]] | None = None
) -> LoadPointRecord:
    """A load point's summary as stored; a block without a value is 0, which no metric can be."""
    return LoadPointRecord(
        load=summary.load.label,
        metrics=finite(summary.metrics),
        per_block={
            name: [value if math.isfinite(value) else 0.0 for value in values]
            for name, values in summary.per_block.items()
        },
        block_counts=dict(counts or {}),
        requests=summary.requests,
        errors=summary.errors,
        acceptance=acceptance_record(summary.acceptance),
    )


def counts_at(run: ServerRun, load: LoadPoint) -> dict[str, list[float]]:
    """What every block at a load point counted; client-bound blocks are left out."""
    rows = [
        block_counts(block, run.block_acceptance.get((load, block.index)))
        for block in blocks_at(run, load)
        if not block.is_client_bound
    ]
    return {name: [row[name] for row in rows] for name in COLUMNS} if rows else {}


def _common(bench: Bench, attempt: Attempt) -> dict[str, Any]:
    plan, run, engine = attempt.plan, attempt.run, bench.engine
    return {
        "number": plan.number,
        "params": dict(plan.params),
        "requested_args": args_record(plan.args),
        "digest": plan.args.digest,
        "effective_args": without_secrets(run.effective),
        "effective_digest": effective_digest(run),
        "predicted": plan.predicted,
        "seconds": run.seconds(),
        "prune": attempt.decision,
        "cycle": finite(run.cycle),
        "is_synthetic": engine.is_synthetic(plan.args),
        "is_lossy": engine.is_lossy(plan.args),
        "is_simulated": bench.runner.is_simulated,
        "started_utc": attempt.started.isoformat(),
        "finished_utc": datetime.now(UTC).isoformat(),
        "fingerprint": bench.fingerprint,
        "log_path": str(run.log_path) if run.log_path else "",
    }


def measured_record(
    bench: Bench, attempt: Attempt, measurement: Measurement, history: History
) -> TrialRecord:
    """The record of a baseline, complete or pruned trial."""
    objective = bench.objective
    summary = measurement.at(objective.load)
    values = objective.block_values(measurement)
    reference = values if attempt.plan.is_baseline else history.baseline_blocks()
    value, acceptance = objective.value(measurement), summary.acceptance
    usual = [value] * len(values) if attempt.plan.is_baseline else reference
    state: State = "baseline" if attempt.plan.is_baseline else "complete"
    return TrialRecord(
        **_common(bench, attempt),
        state="pruned" if attempt.decision else state,
        value=value,
        half_width=half_width(value, values, usual),
        vs_baseline=objective.ratio(values, reference),
        drift=None if attempt.plan.is_baseline else history.drift_at(history.launches),
        acceptance_length=acceptance.length if acceptance else None,
        acceptance_per_position=list(acceptance.per_position) if acceptance else [],
        acceptance=acceptance_record(acceptance),
        metrics=finite(summary.metrics),
        load_points=[
            load_point_record(each, counts_at(attempt.run, each.load))
            for each in measurement.summaries
        ],
        constraints=constraint_values(bench, attempt, summary, history),
        warnings=list(dict.fromkeys(attempt.run.warnings)),
    )


def constraint_values(
    bench: Bench, attempt: Attempt, summary: LoadSummary, history: History
) -> dict[str, float]:
    """Violation per outcome constraint; unknown counts as violated by 1 and JSON can hold it."""
    baseline = history.baseline_metrics()
    if attempt.plan.is_baseline and not baseline:
        baseline = finite(summary.metrics)
    found = bench.objective.violations(summary.metrics, baseline)
    return {text: value if math.isfinite(value) else 1.0 for text, value in found.items()}


def half_width(value: float, values: Sequence[float], reference: Sequence[float]) -> float | None:
    """Half of the 95 % interval of one launch's value, from its blocks; None below two blocks.

    Blocks are taken relative to the baseline's, so that easy and hard prompts do not count as
    noise; the baseline itself has nothing to be taken relative to.
    """
    logs = log_ratios(values, reference)
    if len(logs) < 2:
        return None
    mean, _, high = mean_interval(logs, 0.95)
    return value * math.expm1(high - mean)


def failed_record(bench: Bench, attempt: Attempt, failure: TrialFailure) -> TrialRecord:
    """The record of a trial without a value."""
    infeasible = failure.kind is FailureKind.INFEASIBLE
    return TrialRecord(
        **_common(bench, attempt),
        state="infeasible" if infeasible else "failed",
        failure=failure.kind.label,
        reason=failure.reason,
        hint=failure.hint,
        warnings=list(attempt.run.warnings),
        is_draft_fault=failure.is_draft_fault,
    )


def reused_record(bench: Bench, attempt: Attempt, twin: TrialRecord) -> TrialRecord:
    """The record of a point that starts the same server as an earlier trial."""
    mine = _common(bench, attempt)
    kept = ("number", "params", "requested_args", "digest", "predicted", "seconds")
    times = ("started_utc", "finished_utc")
    changes = {name: mine[name] for name in (*kept, *times)}
    reason = f"same server as trial {twin.number}"
    return twin.model_copy(
        update={**changes, "state": "reused", "twin_of": twin.number, "reason": reason}
    )
