"""The screen of `tuner explain`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.explaining import explanation_lines
from tuner.cli.simulating import simulated
from tuner.errors import UsageError
from tuner.insight.leverage import explain
from tuner.insight.whatif import WhatIf
from tuner.measure.statistics import Interval
from tuner.store.record import RecommendationRecord, TrialRecord
from tuner.store.stored import StoredStudy

Tuner = Callable[..., Any]
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


def test_a_what_if_that_was_run_stands_below_its_prediction(study: StoredStudy) -> None:
    ran = Interval(1.39, 1.33, 1.45, 4, 0.02)
    versus = Interval(1.9, 1.8, 2.0, 4, 0.02)
    what_if = WhatIf(3.35, 3.31, 2.1, 1.41, ran, 1.37, versus, 480.0)
    found = explain(study)
    lever = replace(next(e for e in found.levers if e.length), simulated=(1.39, 1.33, 1.45))
    levers = tuple(lever if each.name == lever.name else each for each in found.levers)
    done = replace(found, levers=levers, what_if=what_if)
    lines = explanation_lines(study, done, 80)
    place = lines.index("What-if run on the real server, told what to accept (4 rounds):")
    assert lines[place + 1 : place + 5] == [
        "  acceptance length 2.10 measured, 3.35 asked, 3.31 drawn (counted)",
        "  predicted 1.41x, ran 1.39x [1.33, 1.45]: 1 % apart",
        "  against the baseline 1.90x [1.80, 2.00]",
        "",
    ]
    assert any(line.strip() == "1.39x [1.33, 1.45]  simulated on the server" for line in lines)
    assert done.to_json()["what_if"]["predicted"] == 1.41


def test_a_noisy_what_if_says_how_many_rounds_and_minutes(study: StoredStudy) -> None:
    ran = Interval(1.5, 1.2, 1.9, 2, 0.1)
    what_if = WhatIf(3.35, 3.31, 2.1, 1.41, ran, 1.37, ran, 240.0)
    more = what_if.more_rounds
    assert more > 10
    text = " ".join(explanation_lines(study, replace(explain(study), what_if=what_if), 80))
    assert f"--rounds {2 + more} should do (about {2 * more} min more)" in " ".join(text.split())


def test_simulated_studies_say_so(study: StoredStudy) -> None:
    marked = study.trials[0].model_copy(update={"is_simulated": True})
    fake = StoredStudy("demo", [marked, *study.trials[1:]], None, [], study.document)
    assert explanation_lines(fake, explain(fake), None)[1].startswith("Simulated")


# ---- the commands ----------------------------------------------------------------------------
def test_explain_prints_one_document(tuner: Tuner, stored: str) -> None:
    found = tuner("explain", "kimi", "--json")
    assert found.exit_code == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["cycle"]["verify"] == pytest.approx(0.0192)
    assert document["levers"][0]["name"] == "better draft"
    assert document["crossover"]["points"][0]["load"] == "c1"
    assert document["conclusion"].startswith("Largest lever: better draft")


def test_report_writes_one_file(tuner: Tuner, stored: str) -> None:
    pytest.importorskip("plotly")
    found = tuner("report", "kimi", "--json")
    assert found.exit_code == 0, found.stderr
    path = Path(json.loads(found.stdout)["file"])
    assert path.name == "kimi-report.html"
    assert "Recommended: trial 5" in path.read_text(encoding="utf-8")


def test_simulating_needs_the_study_file(tuner: Tuner, stored: str) -> None:
    found = tuner("explain", "kimi", "--simulate")
    assert found.exit_code == 2
    assert "must be given as its study file" in found.stderr


def test_only_engines_that_know_synthetic_acceptance_simulate(
    stored: str, study: StoredStudy
) -> None:
    bare = explain(StoredStudy("demo", [study.trials[0]], None, [], study.document))
    with pytest.raises(UsageError, match="must have a lever that changes acceptance, got none"):
        simulated("kimi", bare)
