"""Owns one trial: `run_trial` is the whole line of the design, read from top to bottom.

Everything that can go wrong in it becomes a `TrialFailure` at one boundary, here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.args import ServerArgs
from tuner.errors import FailureKind, Interrupted, TrialFailure, TunerError
from tuner.events import BlockMeasured, TrialStarted
from tuner.measure.checks import check_measurement
from tuner.measure.metrics import summarize
from tuner.measure.records import Block, LoadPoint, Measurement
from tuner.measure.series import acceptance_trend
from tuner.search.bench import Bench, LaunchPlan, ServerRun, StopEarly, blocks_at, raw_blocks
from tuner.search.confounders import confounders, gpu_confounders
from tuner.search.history import History
from tuner.search.launching import run_launch
from tuner.search.local_runner import effective_digest
from tuner.search.pruning import Judge
from tuner.search.recording import (
    Attempt,
    TrialPlan,
    failed_record,
    measured_record,
    reused_record,
)
from tuner.store.record import TrialRecord


class SameServer(Exception):
    """The running server turned out to be one that was measured already."""

    def __init__(self, twin: TrialRecord) -> None:
        super().__init__(f"same server as trial {twin.number}")
        self.twin = twin


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """A finished trial: its record, the raw blocks behind it, and their summary."""

    record: TrialRecord
    blocks: tuple[Block, ...] = ()
    measurement: Measurement | None = None


def run_trial(bench: Bench, plan: TrialPlan, history: History, judge: Judge) -> TrialOutcome:
    """Launch, measure and judge one server; whatever the server did ends in the record.

    Raises:
        Interrupted: the user stopped the run; the server is stopped already.
        TunerError: the host or the engine cannot be used any more.
    """
    bench.observer(TrialStarted(plan.number, plan.params, plan.is_baseline, plan.predicted))
    attempt, measurement = Attempt(plan), None
    try:
        reject_broken_rules(plan)
        reject_known(history, plan)
        stop_early = early_stop(bench, attempt, history, judge)
        run_launch(bench, launch_plan(bench, plan), attempt.run, stop_early)
        measurement = summarize_run(bench, attempt.run)
        check_drafting(bench, plan.args, measurement)
        check_objective(bench, plan, measurement)
        attempt.run.warnings += unlike_baseline(bench, attempt, history)
        attempt.run.warnings += decaying(bench, attempt.run)
        attempt.run.warnings += check_measurement(measurement, history.baseline)
        record = measured_record(bench, attempt, measurement, history)
    except SameServer as same:
        record = reused_record(bench, attempt, same.twin)
    except TrialFailure as failure:
        record = failed_record(bench, attempt, failure)
    except (Interrupted, TunerError):
        raise
    except Exception as error:  # noqa: BLE001 - the one boundary: our own fault ends one trial
        ours = TrialFailure(FailureKind.UNEXPECTED, f"{type(error).__name__}: {error}")
        record = failed_record(bench, attempt, ours)
    return TrialOutcome(record, raw_blocks(attempt.run), measurement)


def reject_broken_rules(plan: TrialPlan) -> None:
    """Raise INFEASIBLE for a server that breaks a rule; it is never launched."""
    if plan.broken_rules:
        raise TrialFailure(FailureKind.INFEASIBLE, "; ".join(plan.broken_rules))


def reject_known(history: History, plan: TrialPlan) -> None:
    """Raise SameServer when an earlier trial launched these very arguments."""
    twin = None if plan.is_baseline else history.twin_of(plan.args)
    if twin is not None:
        raise SameServer(twin)


def launch_plan(bench: Bench, plan: TrialPlan) -> LaunchPlan:
    """The launch of a trial: the search's blocks at every load point."""
    return LaunchPlan(
        number=plan.number,
        args=plan.args,
        blocks=bench.workload.blocks,
        loads=bench.loads,
        folder=plan.folder,
        label=f"trial-{plan.number}",
    )


def early_stop(bench: Bench, attempt: Attempt, history: History, judge: Judge) -> StopEarly:
    """After each block at the objective's load: report it, and ask the pruner."""
    plan, objective = attempt.plan, bench.objective

    def stop(run: ServerRun, load: LoadPoint) -> bool:
        if len(blocks_at(run, load)) == 1 and not plan.is_baseline:
            twin = history.effective_twin(plan.args, effective_digest(run), run.effective)
            if twin is not None:
                raise SameServer(twin)
        measurement = summarize_run(bench, run)
        values = objective.block_values(measurement)
        ratio = objective.ratio(values, history.baseline_blocks())
        bench.observer(
            BlockMeasured(
                plan.number, len(values), len(bench.workload.blocks),
                objective.value(measurement), ratio,
            )
        )  # fmt: skip
        if not plan.is_baseline:
            attempt.decision = judge(values, history)
        return attempt.decision is not None

    return stop


def summarize_run(bench: Bench, run: ServerRun) -> Measurement:
    """All blocks so far, summarised per load point with their acceptance."""
    return summarize(run.blocks, acceptance=run.acceptance, limits=bench.workload.limits)


def decaying(bench: Bench, run: ServerRun) -> list[str]:
    """That the draft was accepted less and less, at the objective's load."""
    load = bench.objective.load
    known = [run.block_acceptance.get((load, block.index)) for block in blocks_at(run, load)]
    return acceptance_trend([each.length for each in known if each is not None])


def unlike_baseline(bench: Bench, attempt: Attempt, history: History) -> list[str]:
    """What differs from the baseline besides drafting, unless the drift said so already."""
    if attempt.plan.is_baseline or not history.baselines:
        return []
    said = {drift.name for drift in attempt.run.drifts}
    baseline = history.baselines[-1].effective_args
    found = confounders(bench.engine.confounders, baseline, attempt.run.effective)
    reference = history.baseline.blocks if history.baseline else ()
    on_gpus = gpu_confounders(reference, attempt.run.blocks)
    return [*(drift.message for drift in found if drift.name not in said), *on_gpus]


def check_objective(bench: Bench, plan: TrialPlan, measurement: Measurement) -> None:
    """Raise IMPLAUSIBLE where there is nothing to compare: no value, or a baseline of 0."""
    value = bench.objective.value(measurement)
    if not math.isfinite(value) or (plan.is_baseline and value <= 0):
        got = f"{value:g}" if math.isfinite(value) else "none"
        raise TrialFailure(
            FailureKind.IMPLAUSIBLE,
            f"{bench.objective.metric} must be measured to be compared, got {got}",
            hint="Choose another objective, longer answers, or wider objective limits.",
        )


def check_drafting(bench: Bench, args: ServerArgs, measurement: Measurement) -> None:
    """Raise DRAFT_INACTIVE when a server with a draft model never drafted a token."""
    acceptance = measurement.at(bench.objective.load).acceptance
    if acceptance is None or bench.engine.draft_source(args) != "model":
        return
    if acceptance.steps == 0 or acceptance.drafted == 0:
        raise TrialFailure(
            FailureKind.DRAFT_INACTIVE,
            f"speculation is on, but no draft token was proposed ({acceptance.basis})",
            hint="Read the server log of this trial: the engine switched speculation off.",
        )
