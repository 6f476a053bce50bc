"""Owns why a search ends or may launch no more speculative servers; pure, on the history."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.args import ServerArgs
from tuner.engines.base import Engine
from tuner.errors import FailureKind
from tuner.search.history import History
from tuner.store.record import TrialRecord

SAME_FAILURES = 3
"""So many launches in a row that failed with the same words mean the host, not the servers."""

NEVER_ACCEPTED_DRAFTS = 8
"""Drafted tokens after which an acceptance of nothing at all is a finding."""

INSPECT_HINT = "Run `tuner draft inspect` on the draft model; search.keep_going launches on."


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the search ends, and what to do about it; `is_budget`: there was more to launch."""

    why: str
    hint: str = ""
    is_budget: bool = False


def spent_budget(launches: int, max_launches: int, wall_left_s: float | None) -> Stop | None:
    """The budget's end: launches, or wall time with the confirmation's share kept back."""
    if launches >= max_launches:
        return Stop(f"the budget of {max_launches} launches is used up", is_budget=True)
    if wall_left_s is not None and wall_left_s <= 0:
        why = "the wall-time budget is used up, the rest is kept for the confirmation"
        return Stop(why, is_budget=True)
    return None


def host_trouble(history: History) -> Stop | None:
    """Several launches in a row that failed alike, or faults of our own."""
    failures = history.last_failures()[:SAME_FAILURES]
    if len(failures) < SAME_FAILURES:
        return None
    kinds = {record.failure for record in failures}
    reasons = {record.reason for record in failures}
    unexpected = kinds == {FailureKind.UNEXPECTED.label}
    if len(reasons) == 1 or unexpected:
        last = failures[0]
        return Stop(
            f"the last {SAME_FAILURES} launches all failed with {last.failure}: {last.reason}",
            last.hint or f"Read {last.log_path or 'the server logs'} and run `tuner doctor`.",
        )
    return None


def unfit_host(history: History, newest: int) -> Stop | None:
    """The newest launches of the baseline vary or drift beyond what a gain could be told from.

    Only so many count: a host that was put right may be measured on again.
    """
    trouble = history.sentinels(newest).trouble()
    hint = (
        "End what else runs on this machine or fix its clocks (`tuner doctor`), then run again: "
        "it goes on where it was. search.keep_going measures in spite of it."
    )
    return Stop(f"this host is unfit to compare servers: {trouble}", hint) if trouble else None


def drift_words(history: History, changed: int) -> tuple[str, str]:
    """That the machine drifts, and what was done about it."""
    trend = history.sentinels().drift
    return (
        f"the baseline drifts by {math.expm1(trend.slope):+.1%} per launch "
        f"({trend.change:+.0%} so far)",
        f"{changed} trials were compared again, each with the baseline interpolated between its "
        "launches before and after; the confirmation alternates its launches.",
    )


def draft_trouble(engine: Engine, history: History, keep_going: bool) -> Stop | None:
    """A draft no server can work with: refused by the engine, or never accepted."""
    for record in history.records:
        if record.is_draft_fault:
            return Stop(
                f"the draft model cannot be used: {record.reason}",
                record.hint or "Check that draft and target belong together.",
            )
        if not keep_going and is_never_accepted(record) and drafts_by_model(engine, record):
            return Stop(
                f"never accepted: trial {record.number} drafted "
                f"{drafted_tokens(record)} tokens and none was accepted",
                INSPECT_HINT,
            )
    return None


def drafted_tokens(record: TrialRecord) -> int:
    """Drafted tokens of a trial; verification steps where drafts are not counted."""
    acceptance = record.acceptance
    return (acceptance.drafted or acceptance.steps or 0) if acceptance else 0


def is_never_accepted(record: TrialRecord) -> bool:
    """True when enough was drafted and nothing was accepted, though nobody asked for that."""
    acceptance = record.acceptance
    return (
        acceptance is not None
        and not (record.is_synthetic or acceptance.is_synthetic)
        and acceptance.accepted == 0
        and drafted_tokens(record) >= NEVER_ACCEPTED_DRAFTS
    )


def drafts_by_model(engine: Engine, record: TrialRecord) -> bool:
    """True when a model drafts: every other server of the study would use the same one."""
    args = ServerArgs.from_json(record.requested_args.model_dump())
    return engine.draft_source(args) == "model"
