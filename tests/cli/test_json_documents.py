"""docs/json.md names every key that a command's document has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.compare import compare_trials, comparison_document
from tuner.cli.show import study_document
from tuner.cli.verify import VerifyReport
from tuner.host.checkup import Check
from tuner.insight.leverage import explain
from tuner.measure.statistics import Interval
from tuner.store.record import RecommendationRecord, TrialRecord
from tuner.store.stored import StoredStudy

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")


@pytest.fixture
def study(
    trials: list[TrialRecord],
    recommendation: RecommendationRecord,
    document: dict[str, object],
) -> StoredStudy:
    return StoredStudy("kimi", trials, recommendation, document=document)


def undocumented(command: str, document: Mapping[str, Any]) -> list[str]:
    """Keys that the row of a command does not name."""
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `tuner {command}`"))
    return [key for key in document if not re.search(rf"[`{{ ]{key}\b", row)]


def test_compare(study: StoredStudy) -> None:
    found = comparison_document(study, compare_trials(study, 5, 0))
    assert undocumented("compare", found) == []


def test_explain(study: StoredStudy) -> None:
    assert undocumented("explain", explain(study).to_json()) == []


def test_show(study: StoredStudy) -> None:
    assert undocumented("run", study_document(study)) == []


def test_verify() -> None:
    report = VerifyReport((), "record", Interval(1.0, 0.9, 1.1))
    assert undocumented("verify", report.to_json()) == []


def test_doctor() -> None:
    assert undocumented("doctor", Check("disk", "ok", "").to_json()) == []


@pytest.mark.parametrize("model", [TrialRecord, RecommendationRecord])
def test_a_trial_and_a_recommendation(
    model: type[TrialRecord] | type[RecommendationRecord],
) -> None:
    part = PAGE.partition("**A trial**")[2]
    missing = [name for name in model.model_fields if not re.search(rf"\b{name}\b", part)]
    assert missing == []
