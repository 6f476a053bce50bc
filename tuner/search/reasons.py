"""Owns the sentences that stand beside a verdict: what else the search has shown."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tuner import units
from tuner.engines.base import Engine
from tuner.search.history import History
from tuner.search.model_sampler import ModelSuggester
from tuner.search.session import Session
from tuner.search.session_sampler import suggester_of
from tuner.search.stopping import Stop, drafts_by_model
from tuner.store.record import RecommendationRecord, TrialRecord

SHORT = 0.03
"""An acceptance length that falls short by less than this share is what was expected."""


def further(session: Session, found: RecommendationRecord) -> list[str]:
    """What a reader of the verdict should know beside it."""
    expected = session.loaded.config.search.expected_acceptance_length
    return [
        *lossy_lines(found, session.history.records),
        *short_acceptance(session.bench.engine, session.history, expected),
        *random_line(session),
        *(f"{note[0].upper()}{note[1:]}." for note in session.learned.notes),
    ]


def why_nothing(session: Session, stop: Stop) -> list[str]:
    """Reasons shown when no finalist exists at all: the search's best, then why it ended."""
    best = session.history.best()
    reasons = []
    if best is not None:
        found = f"trial {best.number}, {best.vs_baseline:.2f}x baseline"
        reasons.append(f"Nothing was worth a confirmation; the search's best: {found}.")
    reasons.append(f"The search ended: {stop.why}.")
    return [*reasons, stop.hint] if stop.hint else reasons


def random_line(session: Session) -> list[str]:
    """What as many launches at random would have found, where the model can tell."""
    suggester, history = suggester_of(session), session.history
    if not isinstance(suggester, ModelSuggester) or not history.ranked():
        return []
    ratio = units.ratio(suggester.random_search(history.records))
    return [
        f"As many launches at random would have found about {ratio} baseline "
        "(from the model, not measured)."
    ]


def lossy_lines(found: RecommendationRecord, records: list[TrialRecord]) -> Iterator[str]:
    """That the recommended server may change what the model writes, and the best that does not."""
    lossy = {record.number for record in records if record.is_lossy}
    if found.verdict != "use" or found.trial not in lossy:
        return
    yield f"Trial {found.trial} is lossy: its settings may change what the model writes."
    others = [each for each in found.finalists if each.trial not in lossy]
    if not others:
        yield "No lossless server was confirmed beside it."
        return
    best = max(others, key=lambda each: each.ratio)
    gain = f"{units.ratio(best.ratio)} baseline {units.interval(best.low, best.high)}"
    yield f"Best lossless finalist: trial {best.trial}, {gain}."


def short_acceptance(engine: Engine, history: History, expected: float | None) -> list[str]:
    """That no server of the draft model accepts as much as it is known to.

    Short drafts accept little by their nature: only the best server's acceptance counts.
    """
    known = [
        record
        for record in history.records
        if record.acceptance_length is not None
        and record.state in ("complete", "pruned")
        and not record.is_synthetic
        and drafts_by_model(engine, record)
    ]
    if expected is None or not known:
        return []
    best = max(known, key=lambda record: record.acceptance_length or 0.0)
    length = best.acceptance_length or 0.0
    if length >= expected * (1 - SHORT) - _doubt(best):
        return []
    return [
        f"Acceptance length is {length:.2f} at best (trial {best.number}), "
        f"{expected:.2f} were expected: the draft may be wired wrongly. Run `tuner draft inspect` "
        "on it."
    ]


def _doubt(record: TrialRecord) -> float:
    """Twice the standard error of an acceptance length; a step's own spread is about 1.2."""
    steps = record.acceptance.steps if record.acceptance else 0
    return 2.4 / math.sqrt(steps) if steps else 0.0
