"""The screens that read a stored study."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuner.cli.show import study_document, study_lines, trial_lines
from tuner.errors import UsageError
from tuner.insight.sentences import recommendation_lines
from tuner.store.record import RecommendationRecord, TrialRecord
from tuner.store.stored import StoredStudy

Golden = Callable[[str, str], None]


@pytest.fixture
def study(
    trials: list[TrialRecord], recommendation: RecommendationRecord, document: dict[str, Any]
) -> StoredStudy:
    return StoredStudy("kimi-k2.5", trials, recommendation, [], document)


@pytest.mark.parametrize("width", [80, 100, 160, None])
def test_a_study(study: StoredStudy, width: int | None, golden: Golden) -> None:
    lines = study_lines(study, width)
    golden(f"show-{width or 'plain'}", "\n".join(lines) + "\n")


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 6])
def test_one_trial(study: StoredStudy, number: int, golden: Golden) -> None:
    golden(f"trial-{number}", "\n".join(trial_lines(study, study.trial(number))) + "\n")


def test_what_the_running_server_changed_is_shown(study: StoredStudy) -> None:
    changed = study.trial(1).model_copy(
        update={
            "effective_args": {"speculative-num-steps": 2},
            "warnings": ["page size fell to 1"],
            "constraints": {"ttft_p95_ms <= 1.10 * baseline": 0.2, "error_rate == 0": 0.0},
            "is_lossy": True,
            "outputs_match": 0.97,
        }
    )
    text = "\n".join(trial_lines(study, changed))
    assert "  the running server used instead:\n  --speculative-num-steps 2" in text
    assert "warning: page size fell to 1" in text
    assert "breaks the constraint ttft_p95_ms <= 1.10 * baseline" in text
    assert "error_rate" not in text
    assert "marks             lossy" in text
    assert "same answers      97% of the baseline's" in text


def test_simulated_numbers_say_so(study: StoredStudy) -> None:
    study.trials[1] = study.trials[1].model_copy(
        update={"is_simulated": True, "is_synthetic": True, "warnings": ["odd"]}
    )
    lines = study_lines(study, None)
    assert "Simulated: the numbers are replayed or scripted, nothing was measured." in lines
    assert "Synthetic acceptance in some trials: never recommended." in lines
    assert "1 warning; read them with `tuner show kimi-k2.5 TRIAL`." in lines


def test_the_document_has_what_the_contract_names(study: StoredStudy) -> None:
    document = study_document(study)
    assert [trial["number"] for trial in document["trials"]] == [0, 1, 2, 3, 4, 5, 6]
    named = {
        "number", "state", "failure", "params", "requested_args", "effective_args", "digest",
        "value", "vs_baseline", "acceptance_length", "acceptance_per_position", "metrics",
        "load_points", "seconds", "warnings",
    }  # fmt: skip
    assert all(named <= set(trial) for trial in document["trials"])
    assert set(document["trials"][1]["seconds"]) == {
        "launch", "warm_up", "measure", "stop", "total",
    }  # fmt: skip
    assert document["baseline"]["number"] == 0
    kept = {
        "verdict", "trial", "server_args", "ratio", "low", "high", "constraints_met", "fidelity",
        "held_out",
    }  # fmt: skip
    assert kept <= set(document["recommendation"])
    assert document["objective"] == {
        "metric": "output_tokens_per_s",
        "direction": "maximize",
        "load": "c1",
    }
    assert [t["number"] for t in study_document(study, study.trial(5))["trials"]] == [5]


def test_an_unknown_trial_is_refused(study: StoredStudy) -> None:
    with pytest.raises(UsageError) as caught:
        study.trial(99)
    assert caught.value.message == "study kimi-k2.5: must have a trial 99, got 0 to 6."


def test_the_recommendation(recommendation: RecommendationRecord) -> None:
    assert recommendation_lines(recommendation) == [
        "Recommended: trial 5, 1.38x baseline [1.36, 1.40].",
        "  Trials 5 and 1 differ by less than the noise (0.3% < 1.1%); "
        "the simpler server is preferred.",
    ]


def test_keeping_the_baseline(keep_baseline: RecommendationRecord) -> None:
    assert recommendation_lines(keep_baseline) == [
        "Recommended: keep the baseline. No server beat it by more than the noise.",
        "  Best finalist: trial 9, 1.01x [0.99, 1.03]. "
        "Smallest gain this study could have seen: 1.02x.",
        "  Acceptance length is 1.08: the draft is almost never accepted.",
    ]


def test_reasons_are_not_said_twice(keep_baseline: RecommendationRecord) -> None:
    reasons = [
        "No server beat it by more than the noise.",
        "Best finalist: trial 9, 1.01x [0.99, 1.03].",
        "Smallest gain this study could have seen: 1.02x.",
    ]
    found = keep_baseline.model_copy(update={"reasons": reasons})
    assert len(recommendation_lines(found)) == 2


def test_a_faster_finalist_that_breaks_a_constraint_is_not_called_noise(
    keep_baseline: RecommendationRecord,
) -> None:
    fast = keep_baseline.finalists[0].model_copy(
        update={"ratio": 1.2, "low": 1.1, "high": 1.3, "constraints_met": False}
    )
    lines = recommendation_lines(keep_baseline.model_copy(update={"finalists": [fast]}))
    assert lines[0] == "Recommended: keep the baseline."
    assert lines[1].startswith("  Best finalist: trial 9, 1.20x [1.10, 1.30], breaks a constraint")


def test_no_recommendation_and_a_simulated_one(recommendation: RecommendationRecord) -> None:
    assert recommendation_lines(None)[0].startswith("Nothing is recommended yet")
    simulated = recommendation.model_copy(update={"is_simulated": True})
    lines = recommendation_lines(simulated)
    assert lines[0] == "Recommended (simulated): trial 5, 1.38x baseline [1.36, 1.40]."
    assert any("no real server was measured" in line for line in lines)


def test_a_correction_for_drift_is_told(trials: list[TrialRecord]) -> None:
    study = StoredStudy("kimi", trials, None)
    drifted = trials[1].model_copy(update={"drift": -0.039})
    line = f"{'drift':<18}the machine was 4 % slower than usual at this launch: taken out"
    assert line in trial_lines(study, drifted)
    assert not [text for text in trial_lines(study, trials[1]) if text.startswith("drift")]
