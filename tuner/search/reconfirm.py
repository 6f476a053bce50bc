"""Owns confirming on demand: chosen trials, or the search's best, without searching further."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.config.loader import LoadedStudy
from tuner.errors import UsageError
from tuner.events import Observer, ignore
from tuner.search.confirm import Campaign, confirm
from tuner.search.loop import RunResult, announce, campaign_for, finalists_of, finish, keep_verdict
from tuner.search.reasons import further
from tuner.search.session import Session, open_session
from tuner.server.interrupts import raise_on_signals
from tuner.store.record import TrialRecord


def confirm_study(
    loaded: LoadedStudy, trials: Sequence[int] = (), *, observer: Observer = ignore
) -> RunResult:
    """Confirm trials of a stored study against its baseline on held-out prompts.

    Args:
        loaded: the study; it was run before.
        trials: numbers of trials with a value; the search's best when empty.
        observer: told of every launch.

    Raises:
        UsageError: the study has no baseline, or a trial has no value.
        Interrupted: the user stopped it; finished launches are stored.
    """
    with raise_on_signals(), open_session(loaded, observer, new=False) as session:
        announce(session)
        found = confirm(campaign_of(session, trials), loaded.config.fidelity)
        found = found.model_copy(update={"reasons": [*found.reasons, *further(session, found)]})
        recommendation = keep_verdict(session, found)
        return finish(session, recommendation, "the confirmation is done")


def campaign_of(session: Session, trials: Sequence[int]) -> Campaign:
    """The servers to be confirmed, the baseline first."""
    if not session.history.baselines:
        raise UsageError(
            f"study {session.opened.name}: must have a measured baseline, got none.",
            "Run the study first.",
        )
    chosen: dict[str, TrialRecord] = {}
    for record in (chosen_trial(session, number) for number in trials):
        if record.state != "baseline":
            chosen.setdefault(record.digest, record)  # one server is launched under one number
    if trials and not chosen:
        raise UsageError(
            f"study {session.opened.name}: must name a trial beside the baseline, got "
            f"{' '.join(map(str, trials))}.",
            "The baseline is launched in every confirmation; leave it out.",
        )
    return campaign_for(session, list(chosen.values()) or finalists_of(session))


def chosen_trial(session: Session, number: int) -> TrialRecord:
    """A trial with a value; raises UsageError for any other."""
    got = "no such trial"
    for record in session.history.records:
        if record.number == number:
            if record.value is not None:
                return record
            got = f"one that is {record.state}"
    name = session.opened.name
    raise UsageError(
        f"study {name}: trial {number} must be one that was measured, got {got}.",
        f"Choose one that `tuner show {name}` lists as complete.",
    )
