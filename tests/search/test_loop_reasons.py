"""What is said beside a verdict: why nothing was confirmed, what is lossy, what was expected."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tuner.config.engine import FakeConfig
from tuner.engines.fake import FakeEngine
from tuner.search.history import History
from tuner.search.loop import hang_hints
from tuner.search.reasons import lossy_lines, short_acceptance, why_nothing
from tuner.search.stopping import Stop
from tuner.store.record import (
    AcceptanceRecord,
    ArgsRecord,
    FinalistRecord,
    RecommendationRecord,
)


def session(history: History) -> Any:
    return SimpleNamespace(history=history)


def test_the_searchs_best_is_named(objective, trial) -> None:
    history = History(objective, [trial(0, "baseline"), trial(3, vs_baseline=0.914)])
    assert why_nothing(session(history), Stop("the budget of 2 launches is used up")) == [
        "Nothing was worth a confirmation; the search's best: trial 3, 0.91x baseline.",
        "The search ended: the budget of 2 launches is used up.",
    ]


def test_a_finding_brings_its_hint(objective, trial) -> None:
    history = History(objective, [trial(0, "baseline")])
    stop = Stop("never accepted: trial 1", "Run `tuner draft inspect`.")
    assert why_nothing(session(history), stop) == [
        "The search ended: never accepted: trial 1.",
        "Run `tuner draft inspect`.",
    ]


def finalist(number: int, ratio: float) -> FinalistRecord:
    return FinalistRecord(
        trial=number, digest=f"d{number}", ratio=ratio, low=ratio - 0.02, high=ratio + 0.02,
        launches=4, constraints_met=True, fidelity="match",
    )  # fmt: skip


def test_a_lossy_winner_is_marked_and_the_best_lossless_one_named(trial) -> None:
    records = [trial(1, is_lossy=True), trial(2), trial(3)]
    finalists = [finalist(1, 1.6), finalist(3, 1.2), finalist(2, 1.3)]
    found = RecommendationRecord(verdict="use", trial=1, finalists=finalists)
    assert list(lossy_lines(found, records)) == [
        "Trial 1 is lossy: its settings may change what the model writes.",
        "Best lossless finalist: trial 2, 1.30x baseline [1.28, 1.32].",
    ]
    alone = found.model_copy(update={"finalists": finalists[:1]})
    assert list(lossy_lines(alone, records))[1] == "No lossless server was confirmed beside it."
    lossless = found.model_copy(update={"trial": 2})
    assert list(lossy_lines(lossless, records)) == []
    kept = RecommendationRecord(verdict="keep_baseline", trial=None, finalists=finalists)
    assert list(lossy_lines(kept, records)) == []


@pytest.mark.parametrize(
    ("expected", "lengths", "said"),
    [
        (2.6, [2.2, 1.8], "Acceptance length is 2.20 at best (trial 1), 2.60 were expected"),
        (2.6, [1.8, 2.58], ""),
        (2.2, [1.8, 2.6], ""),
        (None, [1.0, 1.0], ""),
        (2.6, [], ""),
    ],
)
def test_less_acceptance_than_expected(objective, trial, expected, lengths, said) -> None:
    """A short draft accepts little by its nature: only the best server's length counts."""
    speculative = ArgsRecord(flags={"spec-steps": 3, "draft-model": "/d"})
    records = [
        trial(
            number, requested_args=speculative, acceptance_length=length,
            acceptance=AcceptanceRecord(length=length, steps=10_000, accepted=1),
        )
        for number, length in enumerate(lengths, 1)
    ]  # fmt: skip
    engine = FakeEngine(FakeConfig(kind="fake"))
    history = History(objective, [trial(0, "baseline"), *records])
    found = short_acceptance(engine, history, expected)
    assert [text.startswith(said) for text in found] == ([True] if said else [])


def test_few_steps_are_no_evidence_of_a_shortfall(objective, trial) -> None:
    speculative = ArgsRecord(flags={"spec-steps": 3, "draft-model": "/d"})
    engine = FakeEngine(FakeConfig(kind="fake"))

    def said(steps: int) -> list[str]:
        acceptance = AcceptanceRecord(length=2.4, steps=steps, accepted=1)
        record = trial(1, requested_args=speculative, acceptance_length=2.4, acceptance=acceptance)
        return short_acceptance(engine, History(objective, [record]), 2.6)

    assert said(100) == []
    assert len(said(10_000)) == 1


@pytest.mark.parametrize("failure", ["not_ready", "stalled", "out_of_memory"])
def test_a_baseline_that_hangs_brings_what_makes_gpus_wait(trial, failure: str) -> None:
    record = trial(0, "failed", failure=failure, value=None)
    found = hang_hints(record, lambda: ["an IOMMU translates device memory"])
    wanted = [] if failure == "out_of_memory" else ["An IOMMU translates device memory."]
    assert found == wanted
