"""Whole studies on the real SGLang, on a CPU: a draft that is never accepted, one whose acceptance
is simulated, and a server that becomes ready and dies at its first request.

Needs TUNER_SGLANG_VENV: an environment with SGLang that has the folder models/ with tiny and
tiny-eagle3, and TUNER_REAL_ENGINES, the folder that holds sglang_shim.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from typer.testing import CliRunner

from tuner.cli.app import build_app
from tuner.config.loader import load_study
from tuner.events import Event, Notice
from tuner.search.loop import RunResult, run_study

VENV = Path(os.environ.get("TUNER_SGLANG_VENV", "/nowhere"))
SHIM = Path(os.environ.get("TUNER_REAL_ENGINES", "../shared/real_engines")) / "sglang_shim"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not VENV.is_dir(), reason="TUNER_SGLANG_VENV names no environment"),
]
NAME = f"sglang-cpu-eagle3-{os.getpid()}"  # another run of these tests has its own servers
EAGLE3 = "algorithm == 'EAGLE3'"


def study_of(topk: int, env: dict[str, str], **engine_args: Any) -> dict[str, Any]:
    """{off, EAGLE3 with 1 to 3 steps} in two blocks of two prompts of eight tokens."""
    return {
        "name": NAME,
        "engine": {
            "kind": "sglang",
            "executable": str(VENV / "bin" / "python"),
            "model": str(VENV / "models" / "tiny"),
            "draft_model": str(VENV / "models" / "tiny-eagle3"),
            "args": {
                "device": "cpu", "attention-backend": "triton", "disable-cuda-graph": True,
                "skip-server-warmup": True, "mem-fraction-static": 0.3, "max-total-tokens": 4096,
                "speculative-draft-load-format": "dummy", **engine_args,
            },
            "env": {
                "PYTHONPATH": str(SHIM.resolve()), "TRITON_INTERPRET": "1",
                "HF_HUB_OFFLINE": "1", **env,
            },
            "launch_timeout": "3m",
        },
        "space": {
            "parameters": {
                "algorithm": {"flag": "speculative-algorithm", "choices": ["unset", "EAGLE3"]},
                "steps": {"flag": "speculative-num-steps", "int": [1, 3], "when": EAGLE3},
                "topk": {"flag": "speculative-eagle-topk", "choices": [topk], "when": EAGLE3},
                "draft": {
                    "flag": "speculative-num-draft-tokens", "choices": [4], "when": EAGLE3,
                },
            },
            "start": [{"algorithm": "EAGLE3", "steps": 3, "topk": topk, "draft": 4}],
        },
        "workload": {
            "prompts": {"file": "prompts.txt"}, "blocks": 2, "block_size": 2, "held_out": 2,
            "output_tokens": {"exactly": 8}, "load": [{"concurrency": 1}], "warm_up": 1,
        },
        "objective": {"maximize": "output_tokens_per_s"},
        "search": {"pruner": "none", "baseline_every": 0, "sampler": "random"},
        "budget": {"launches": 2},
        "confirm": {"finalists": 1, "rounds": 2, "max_rounds": 2},
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    words = ("Hello there.", "Count to five.", "Name a colour.", "What is rain?", "Why?", "Who?")
    (tmp_path / "prompts.txt").write_text("".join(f"{word}\n" for word in words))
    return tmp_path


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[None]:
    """After the test no process of a server may live, whoever its parent has become."""
    yield
    assert [p.info["name"] for p in psutil.process_iter(["name"]) if _is_ours(p)] == []


def _is_ours(process: psutil.Process) -> bool:
    try:
        marker = process.environ().get("TUNER_SERVER", "")
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
    return marker.startswith(f"{NAME}:") and process.status() != psutil.STATUS_ZOMBIE


def run(folder: Path, content: dict[str, Any]) -> tuple[RunResult, list[Event]]:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    events: list[Event] = []
    return run_study(load_study(path), observer=events.append), events


def test_a_draft_that_is_never_accepted_ends_with_the_baseline(folder: Path) -> None:
    result, events = run(folder, study_of(1, {}))
    baseline, drafting = result.records
    assert (baseline.state, drafting.state) == ("baseline", "complete")
    assert drafting.requested_args.flags["speculative-num-steps"] == 3
    assert drafting.acceptance_length == 1.0
    assert drafting.acceptance is not None
    assert drafting.acceptance.accepted == 0
    assert (drafting.acceptance.steps or 0) >= 4 * 7
    assert drafting.acceptance_per_position == [0.0]
    assert not drafting.is_synthetic
    assert drafting.effective_args["max-running-requests"] == 48
    assert any("48" in warning for warning in drafting.warnings)
    assert "never accepted" in result.why
    assert any(isinstance(event, Notice) and "never accepted" in event.message for event in events)
    assert result.recommendation.verdict == "keep_baseline"
    assert baseline.acceptance is None
    kept = verified(folder, "kept")
    assert not any(name.startswith("speculative-") for name in kept)
    drafts = verified(folder, "drafts", "--trial", "1", "--unconfirmed")
    assert drafts["speculative-algorithm"] == "EAGLE3"
    assert drafts["speculative-num-draft-tokens"] == 4


def verified(folder: Path, name: str, *how: str) -> dict[str, Any]:
    """Export a server of the study, have `tuner verify` start it from its own files; what its
    server.yaml holds."""
    cli, app = CliRunner(), build_app()
    done = cli.invoke(app, ["export", "study.yaml", "--out", name, *how], prog_name="tuner")
    assert done.exit_code == 0, done.stderr
    done = cli.invoke(app, ["verify", name, "--json"], prog_name="tuner")
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    checks = {each["name"]: each for each in document["checks"]}
    assert checks["server"]["ok"] is True, document
    assert "reported values are as recorded" in checks["server"]["detail"]
    assert checks["outputs"]["ok"] is not False, document
    assert document["differences"] == []
    assert document["value"] > 0
    content: dict[str, Any] = yaml.safe_load((folder / name / "server.yaml").read_text())
    return content


def test_simulated_acceptance_is_reported_and_marked(folder: Path) -> None:
    result, _ = run(folder, study_of(1, {"SGLANG_SIMULATE_ACC_LEN": "2"}))
    drafting = result.records[1]
    assert drafting.state == "complete"
    assert drafting.is_synthetic
    assert drafting.acceptance_length == 2.0
    assert drafting.acceptance is not None
    assert drafting.acceptance.is_synthetic
    assert drafting.acceptance_per_position[0] == 1.0
    assert not result.records[0].is_synthetic
    assert result.recommendation.verdict == "keep_baseline"


def seconds_after_its_crash(folder: Path, number: int) -> float:
    """From the server's own line about its crash to the finished trial; SGLang itself would take
    five seconds and its diagnostics to end."""
    trial = folder / "results" / NAME / "trials" / f"{number:04d}"
    line = next(x for x in (trial / "server.log").read_text().splitlines() if "SIGQUIT" in x)
    crashed = datetime.strptime(line[1:20], "%Y-%m-%d %H:%M:%S").astimezone()
    record = json.loads((trial / "record.json").read_text())
    finished = datetime.fromisoformat(record["finished_utc"])
    return (finished - crashed).total_seconds()


def test_a_server_that_is_ready_and_dies_is_launched_once(folder: Path) -> None:
    content = study_of(2, {})
    steps = {"flag": "speculative-num-steps", "choices": [2], "when": EAGLE3}
    content["space"]["parameters"]["steps"] = steps
    content["space"]["start"][0]["steps"] = 2
    content["budget"]["launches"] = 4
    result, _ = run(folder, content)
    died = [record for record in result.records if record.failure == "died"]
    assert len(died) == 1
    assert "it was ready and died: RuntimeError" in died[0].reason
    assert died[0].value is None
    assert died[0].seconds.total < max(60, 2 * result.records[0].seconds.launch)  # its launch
    assert seconds_after_its_crash(folder, died[0].number) < 15
    launched = [json.dumps(r.requested_args.flags, sort_keys=True) for r in result.records]
    assert launched.count(json.dumps(died[0].requested_args.flags, sort_keys=True)) == 1
    assert result.recommendation.verdict == "keep_baseline"
