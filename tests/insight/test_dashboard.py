"""What the dashboard says about a study."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuner.insight.dashboard import CHARTS, dashboard_content, trial_note
from tuner.insight.leverage import explain
from tuner.store.record import ArgsRecord, PruneDecision, TrialRecord
from tuner.store.stored import StoredStudy

Make = Callable[..., Any]
EVIL = "<img src=x onerror=alert(1)>|\n# big"


def test_the_studys_note(story: StoredStudy) -> None:
    note = dashboard_content(story, explain(story), ["Recommended: trial 1.", "  why"]).note
    assert note.startswith("## Recommended: trial 1.\n- why\n")
    assert "**Largest lever: better draft" in note
    assert "| better draft | acceptance length 2.10 to 3.35, as AQ-MedAI" in note


def test_charts_in_their_order(make_world: Make) -> None:
    study = make_world().study([1, 2, 3], loads=(1, 4))
    charts = dashboard_content(study, explain(study), ["x"]).charts
    assert [name.split("-")[1] for name in charts] == [n for n in CHARTS if n != "noise"]
    assert charts["1-trials"]["layout"]["title"]["text"] == "Trials over time"


def test_a_trials_note() -> None:
    record = TrialRecord(
        number=3,
        state="pruned",
        value=100.0,
        half_width=2.0,
        vs_baseline=0.9,
        warnings=[EVIL, "hot"],
        requested_args=ArgsRecord(flags={"tp-size": 8, "bad": EVIL}, env={"NCCL_ALGO": None}),
        prune=PruneDecision(after_block=2, blocks=6, ratio=0.9, upper=0.95, margin=0, reference=0),
        is_synthetic=True,
        log_path="trials/3/server.log",
    )
    note = trial_note(record)
    assert "<img" not in note
    assert "| bad | &lt;img src=x onerror=alert(1)&gt;&#124; # big |" in note
    assert "| NCCL_ALGO | unset |" in note
    assert "**synthetic**" in note
    assert "stopped after block 2 of 6" in note
    assert note.rstrip().endswith("log: trials/3/server.log")


@pytest.mark.parametrize("failure", ["out_of_memory", None])
def test_failures_say_why(failure: str | None) -> None:
    record = TrialRecord(
        number=1, state="failed", failure=failure, reason="it <died>", hint="Do x."
    )
    assert f"{failure or ''} it &lt;died&gt; Do x.".strip() in trial_note(record)
