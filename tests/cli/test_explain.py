"""The screen of `tuner explain`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuner.cli.explaining import explanation_lines
from tuner.insight.leverage import explain
from tuner.store.record import RecommendationRecord, TrialRecord
from tuner.store.stored import StoredStudy

Golden = Callable[[str, str], None]


@pytest.fixture
def study(
    trials: list[TrialRecord], recommendation: RecommendationRecord, document: dict[str, Any]
) -> StoredStudy:
    return StoredStudy("kimi-k2.5", trials, recommendation, [], document)


@pytest.mark.parametrize("width", [80, None])
def test_the_screen(study: StoredStudy, width: int | None, golden: Golden) -> None:
    lines = explanation_lines(study, explain(study), width)
    assert all(len(line) <= (width or 120) for line in lines)
    golden(f"explain-{width or 'plain'}", "\n".join(lines) + "\n")


def test_a_study_without_speculative_trials(study: StoredStudy) -> None:
    bare = StoredStudy("demo", [study.trials[0]], None, [], study.document)
    lines = explanation_lines(bare, explain(bare), 80)
    assert lines[-1].startswith("No speculative server was measured")


def test_simulated_studies_say_so(study: StoredStudy) -> None:
    marked = study.trials[0].model_copy(update={"is_simulated": True})
    fake = StoredStudy("demo", [marked, *study.trials[1:]], None, [], study.document)
    assert explanation_lines(fake, explain(fake), None)[1].startswith("Simulated")
