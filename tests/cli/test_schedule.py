"""A depth per load, from the search to an exported table, on the fake server.

Its stated formula: without other requests depth 4 pays, with four running verification is so
dear that drafting loses. Whether the table wins by more than the noise of two rounds is up to
the machine that runs these tests; tests/search/test_schedule.py plays that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

Tuner = Callable[..., Any]
LOADS: dict[str, Any] = {
    "name": "loads",
    "engine": {"behaviour": {
        "step_ms": 4, "acceptance": [0.9], "verify_cost": 0.05, "verify_load": 15,
        "answer_tokens": 20,
    }},
    "space": {"parameters": {"steps": {"flag": "spec-steps", "choices": [4]}}},
    "workload": {
        "block_size": 3, "held_out": 6, "output_tokens": {"max": 20},
        "load": [{"concurrency": 1}, {"concurrency": 4}],
    },
    "objective": {"at": {"concurrency": 1}},
    "fidelity": {"compare": "greedy_text"},
}  # fmt: skip


@pytest.fixture(scope="module")
def study(
    tuner: Tuner,
    tmp_path_factory: pytest.TempPathFactory,
    at_work_in: Callable[..., AbstractContextManager[Path]],
    study_yaml: Callable[..., str],
) -> Iterator[Path]:
    """A study at two loads with its schedule, really run, once for all tests."""
    with at_work_in(tmp_path_factory.mktemp("schedule")) as folder:
        (folder / "loads.yaml").write_text(study_yaml(**LOADS))
        early = tuner("confirm", "loads.yaml", "--schedule")
        assert early.exit_code != 0
        done = tuner("run", "loads.yaml")
        assert done.exit_code == 0, done.stderr
        done = tuner("confirm", "loads.yaml", "--schedule")
        assert done.exit_code == 0, done.stderr
        (folder / "said.txt").write_text(done.stdout)
        yield folder


def schedule_of(tuner: Tuner, study: Path) -> dict[str, Any]:
    document = json.loads(tuner("show", "loads", "--json").stdout)
    found: dict[str, Any] = document["recommendation"]["schedule"]
    return found


def test_depths_are_confirmed_at_each_load_and_the_table_is_measured(
    tuner: Tuner, study: Path
) -> None:
    schedule = schedule_of(tuner, study)
    depths = {step["load"]: step["depth"] for step in schedule["steps"]}
    assert depths == {"c1": 4, "c4": 0}
    assert schedule["sweep"] == ["c1", "c4", "c1"]
    assert schedule["server_args"]["flags"]["spec-schedule"] == "1:4,3:0"
    assert schedule["ratio"] > 1.1
    assert schedule["fidelity"] == "match"
    assert schedule["is_simulated"]


def test_trials_are_not_named(tuner: Tuner, study: Path) -> None:
    refused = tuner("confirm", "loads.yaml", "1", "--schedule")
    assert refused.exit_code == 2
    assert "--schedule: must come without trials, got 1." in refused.stderr


def test_it_is_said_in_words(study: Path) -> None:
    said = (study / "said.txt").read_text().splitlines()
    (verdict,) = [line for line in said if line.startswith("Schedule")]
    assert verdict.startswith(("Schedule: use the table, ", "Schedule: keep one depth ("))
    assert [line.split()[:3] for line in said if line.startswith("  c")] == [
        ["c1", "depth", "4"], ["c4", "depth", "0"],
    ]  # fmt: skip


def test_measuring_it_again_launches_nothing_new(tuner: Tuner, study: Path) -> None:
    before = sorted((study / "results" / "loads" / "confirm").iterdir())
    done = tuner("confirm", "loads.yaml", "--schedule", "--json")
    assert done.exit_code == 0, done.stderr
    assert sorted((study / "results" / "loads" / "confirm").iterdir()) == before


def test_the_table_is_exported_and_verified(tuner: Tuner, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "table"
    refused = tuner("export", "loads", "--for", "schedule", "--out", str(out))
    assert refused.exit_code == 2
    assert "loads, schedule: must be" in refused.stderr
    done = tuner("export", "loads", "--for", "schedule", "--out", str(out),
                 "--unconfirmed", "--allow", "simulated")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["server"]["args"]["flags"]["spec-schedule"] == "1:4,3:0"
    assert manifest["valid_for"]["load"] == "c1, c4"
    assert [step["depth"] for step in manifest["confirmed"]["steps"]] == [4, 0]
    assert "simulated" in manifest["flags"]
    assert "| c4 | 0 |" in (out / "REPORT.md").read_text()
    document = json.loads(tuner("verify", str(out), "--json").stdout)
    checks = {each["name"]: each["ok"] for each in document["checks"]}
    assert (checks["server"], checks["outputs"]) == (True, True)  # the speed is the machine's
    assert 0.3 < document["ratio"] < 3
    assert document["recorded"]["single"] in (0, 1)
