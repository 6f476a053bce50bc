"""What may be exported, and with which flags."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.errors import ExportRefused
from tuner.export.subject import ALLOWANCES, Provenance, choose
from tuner.store.record import ArgsRecord, FinalistRecord, RecommendationRecord, TrialRecord

BASELINE = TrialRecord(
    number=0, state="baseline", requested_args=ArgsRecord(flags={"model": "m"}), digest="b" * 16
)
ALL = frozenset(ALLOWANCES)


def trial(number: int = 5, **changes: Any) -> TrialRecord:
    record = TrialRecord(
        number=number,
        state="complete",
        requested_args=ArgsRecord(flags={"model": "m", "steps": number}),
        digest=f"{number:016x}",
    )
    return record.model_copy(update=changes)


def finalist(number: int = 5, **changes: Any) -> FinalistRecord:
    record = FinalistRecord(
        trial=number, digest=f"{number:016x}", ratio=1.2, low=1.1, high=1.3, launches=4
    )
    return record.model_copy(update=changes)


def recommended(**changes: Any) -> RecommendationRecord:
    record = RecommendationRecord(
        verdict="use",
        trial=5,
        server_args=ArgsRecord(flags={"model": "m", "steps": 5}),
        ratio=1.2,
        low=1.1,
        high=1.3,
        finalists=[finalist()],
    )
    return record.model_copy(update=changes)


def refused(*args: Any, **kwargs: Any) -> ExportRefused:
    with pytest.raises(ExportRefused) as caught:
        choose(*args, **kwargs)
    assert caught.value.exit_code == 2
    return caught.value


WHERE = Provenance("s")


def test_the_recommended_server_needs_no_flag() -> None:
    subject = choose([BASELINE, trial()], recommended(), WHERE)
    assert subject.args.flags == {"model": "m", "steps": 5}
    assert subject.flags == ()
    assert subject.finalist == finalist()


def test_a_kept_baseline_is_exported_as_it_is() -> None:
    found = recommended(verdict="keep_baseline", trial=None, server_args=ArgsRecord())
    subject = choose([BASELINE, trial()], found, WHERE)
    assert subject.keeps_baseline
    assert subject.args.flags == {"model": "m"}


def test_without_a_recommendation_nothing_is_exported() -> None:
    error = refused([BASELINE, trial()], None, WHERE)
    assert error.message == "study s: must have a confirmed recommendation, got none."
    assert "tuner confirm s" in error.hint


def test_an_unconfirmed_trial_needs_the_flag_and_keeps_it() -> None:
    trials = [BASELINE, trial(), trial(7)]
    error = refused(trials, recommended(), WHERE, number=7)
    assert "must be confirmed on held-out prompts" in error.message
    subject = choose(trials, recommended(), WHERE, number=7, allow=frozenset({"unconfirmed"}))
    assert subject.flags == ("unconfirmed",)
    assert subject.recommendation is None


def test_another_proven_finalist_is_confirmed_too() -> None:
    found = recommended(finalists=[finalist(), finalist(7)])
    assert choose([trial(), trial(7)], found, WHERE, number=7).flags == ()
    weak = recommended(finalists=[finalist(), finalist(7, low=0.99)])
    assert "must be confirmed" in refused([trial(), trial(7)], weak, WHERE, number=7).message


def test_flags_that_were_not_needed_are_not_recorded() -> None:
    assert choose([trial()], recommended(), WHERE, allow=ALL).flags == ()


@pytest.mark.parametrize(
    ("changes", "found", "name"),
    [
        ({"is_synthetic": True}, {}, "synthetic"),
        ({"is_simulated": True}, {}, "simulated"),
        ({}, {"is_simulated": True}, "simulated"),
        ({}, {"finalists": [finalist(fidelity="60 % identical")]}, "unfaithful"),
    ],
)
def test_doubtful_results_need_an_allowance(
    changes: dict[str, Any], found: dict[str, Any], name: str
) -> None:
    trials, recommendation = [BASELINE, trial(**changes)], recommended(**found)
    assert f"--allow {name}" in refused(trials, recommendation, WHERE).hint
    subject = choose(trials, recommendation, WHERE, allow=frozenset({name}))
    assert subject.flags == (name,)


@pytest.mark.parametrize("state", ["failed", "infeasible"])
def test_what_was_not_measured_is_never_exported(state: str) -> None:
    bad = trial(3, state=state, failure="out_of_memory")
    error = refused([bad], recommended(), WHERE, number=3, allow=ALL)
    assert error.message.endswith("must be a server that was measured, got out_of_memory.")


def test_an_unknown_trial_is_named() -> None:
    error = refused([trial()], recommended(), WHERE, number=99, allow=ALL)
    assert error.message == "study s: must have a trial 99, got 1 trials."


def test_the_server_that_was_confirmed_is_exported_not_the_one_that_was_searched() -> None:
    """A variable without effect was left out before the confirmation, and is told."""
    searched = ArgsRecord(flags={"model": "m", "steps": 5}, env={"NCCL_ALGO": "Ring", "A": None})
    confirmed = ArgsRecord(flags={"model": "m", "steps": 5}, env={"A": None})
    trials = [BASELINE, trial(requested_args=searched)]
    subject = choose(trials, recommended(server_args=confirmed), WHERE)
    assert dict(subject.args.env) == {"A": None}
    assert subject.left_out == {"NCCL_ALGO": "Ring"}
    assert subject.title == "trial 5"
    by_hand = choose(
        [trial(7, requested_args=searched)], recommended(), WHERE, number=7, allow=ALL
    )
    assert dict(by_hand.args.env) == {"NCCL_ALGO": "Ring", "A": None}
    assert by_hand.left_out == {}


def test_the_baseline_is_called_so_when_it_is_the_answer() -> None:
    kept = recommended(verdict="keep_baseline", trial=None, server_args=ArgsRecord())
    assert choose([BASELINE, trial()], kept, WHERE).title == "the baseline"
    beside = choose([BASELINE, trial()], recommended(), WHERE, number=0, allow=ALL)
    assert (beside.title, beside.flags) == ("the baseline", ("unconfirmed",))


@pytest.mark.parametrize("number", [None, 0, 5])
def test_nothing_that_breaks_the_constraints_goes_out_unmarked(number: int | None) -> None:
    """Not even the baseline, although it is what the study ends with."""
    broken = recommended(
        verdict="keep_baseline", trial=0, constraints_met=False,
        finalists=[finalist(constraints_met=False)],
    )  # fmt: skip
    error = refused([BASELINE, trial()], broken, WHERE, number=number)
    assert "--unconfirmed" in error.hint
    if number is not None:
        subject = choose([BASELINE, trial()], broken, WHERE, number=number, allow=ALL)
        assert subject.flags == ("unconfirmed",)
        assert subject.recommendation is None


def test_a_finalist_is_known_by_its_server_under_another_number() -> None:
    """A reused trial has the digest of the trial that was confirmed."""
    twin = trial(9, state="reused", digest=trial(5).digest)
    assert choose([trial(), twin], recommended(), WHERE, number=9).finalist == finalist(5)
    nameless = trial(9, digest="")
    found = recommended(finalists=[finalist(5, digest="")])
    assert choose([nameless], found, WHERE, number=9, allow=ALL).finalist is None


def test_several_doubts_are_refused_one_after_the_other_and_all_kept() -> None:
    trials = [trial(is_synthetic=True, is_simulated=True)]
    allow: frozenset[str] = frozenset()
    for name in ("unconfirmed", "synthetic", "simulated"):
        assert name in refused(trials, None, WHERE, number=5, allow=allow).hint
        allow |= {name}
    assert choose(trials, None, WHERE, number=5, allow=ALL).flags == (
        "unconfirmed", "synthetic", "simulated",
    )  # fmt: skip
