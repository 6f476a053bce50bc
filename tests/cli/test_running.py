"""`tuner run` and `tuner confirm` from end to end on the fake server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna_dashboard import get_note

from tuner.cli.running import ending_lines
from tuner.store.database import open_store
from tuner.store.record import RecommendationRecord, TrialRecord
from tuner.store.stored import StoredStudy

Tuner = Callable[..., Any]
StudyYaml = Callable[..., str]


@pytest.fixture
def study(work: Path, study_yaml: StudyYaml) -> str:
    (work / "demo.yaml").write_text(study_yaml())
    return "demo.yaml"


def test_a_study_runs_resumes_and_is_confirmed(
    tuner: Tuner, study: str, study_yaml: StudyYaml
) -> None:
    found = tuner("run", study)
    assert found.exit_code == 0, found.stderr
    assert found.stdout.startswith("Recommended (simulated): ")
    assert "Next:" not in found.stdout, "what was simulated is not exported"
    narrated = [line.split("  ", 1)[1] for line in found.stderr.splitlines()]
    assert narrated[0] == "warning: Simulated: no real server is measured, only a stand-in."
    states = [line.split()[1] for line in narrated if line.split()[0].isdigit()]
    assert states == ["baseline", "complete", *["confirm"] * 4]

    again = tuner("run", study, "--json")
    document = json.loads(again.stdout)
    assert [trial["state"] for trial in document["trials"]] == ["baseline", "complete"]
    assert document["recommendation"]["is_simulated"] is True
    assert "Resuming demo: 2 trials are stored" in again.stderr
    assert again.stderr.count("confirm 1/2") == 2

    Path(study).write_text(study_yaml(search={"expected_acceptance_length": 9.0}))
    confirmed = tuner("confirm", "demo", "1", "--json")
    assert confirmed.exit_code == 0, confirmed.stderr
    said = json.loads(confirmed.stdout)["recommendation"]
    assert [finalist["trial"] for finalist in said["finalists"]] == [1]
    assert any(line.startswith("Acceptance length is ") for line in said["reasons"]), "as run does"
    unknown = tuner("confirm", "demo", "9")
    assert unknown.exit_code == 2
    assert "trial 9 must be one that was measured, got no such trial." in unknown.stderr
    alone = tuner("confirm", "demo", "0")
    assert alone.exit_code == 2
    assert "must name a trial beside the baseline, got 0." in alone.stderr

    refused = tuner("export", "demo", "--trial", "1", "--unconfirmed", "--out", "out")
    assert refused.exit_code == 2
    assert "must be measured on a real server" in refused.stderr


def test_confirming_what_never_ran_is_refused(tuner: Tuner, study: str) -> None:
    found = tuner("confirm", study)
    assert found.exit_code == 2
    assert "Run the study first." in found.stderr


def test_control_c_leaves_with_the_resume_command(work: Path, study_yaml: StudyYaml) -> None:
    (work / "demo.yaml").write_text(study_yaml(engine={"behaviour": {"load_s": 60}}))
    command = [sys.executable, "-m", "tuner", "run", "demo.yaml", "--verbose"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line.decode())
            if "launching" in lines[-1]:
                process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stdout is not None
        assert process.stdout.read() == b""
    assert lines[-1] == "  Go on with: tuner run demo.yaml\n"


def test_an_interrupted_run_fills_the_dashboard(study: str) -> None:
    command = [sys.executable, "-m", "tuner", "run", study, "--verbose"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"trial 1: launching" in line:
                process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 130
    with open_store("sqlite:///results/demo/study.db", create=False) as store:
        found = optuna.load_study(study_name="demo", storage=store.optuna_storage)
        note = get_note(optuna.trial.Trial(found, found.get_trials(deepcopy=False)[0]._trial_id))
        assert note.startswith("## trial 0: baseline")
        assert get_note(found).startswith("## Nothing is recommended yet")


def test_a_real_study_ends_with_what_to_do_next(
    trials: list[TrialRecord], recommendation: RecommendationRecord
) -> None:
    def last(found: RecommendationRecord | None) -> str:
        return ending_lines(StoredStudy("kimi", trials, found))[-1]

    assert last(recommendation) == "Next: tuner export kimi"
    kept = recommendation.model_copy(update={"verdict": "keep_baseline", "trial": 0})
    assert last(kept) == "Next: tuner explain kimi", "there is nothing new to deploy"
    for nothing in (None, kept.model_copy(update={"constraints_met": False})):
        assert "Next:" not in last(nothing)


def test_a_study_without_a_feasible_server_says_so_everywhere(
    tuner: Tuner, study: str, study_yaml: StudyYaml
) -> None:
    Path(study).write_text(study_yaml(objective={"constraints": ["ttft_p95_ms <= 0.001"]}))
    found = tuner("run", study, "--json")
    assert found.exit_code == 1
    assert found.stderr.splitlines()[-2:] == [
        "no server satisfies the outcome constraints, the baseline included",
        "  Relax objective.constraints, or lower the load.",
    ]
    document = json.loads(found.stdout)
    assert [trial["state"] for trial in document["trials"]] == ["baseline", "complete"]
    assert document["recommendation"]["constraints_met"] is False
    shown = tuner("show", study).stdout
    assert "Nothing is recommended: not even the baseline satisfies the constraints." in shown
    exported = tuner("export", study, "--out", "bundle", "--allow", "simulated")
    assert exported.exit_code == 2
    assert "must have a server that satisfies its constraints, got none." in exported.stderr
