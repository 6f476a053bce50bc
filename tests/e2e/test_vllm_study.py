"""A whole study on the real vLLM, and one whose tuner is killed while a server starts.

Needs TUNER_VLLM_VENV (see test_vllm.py). The study is the published question in small: does
n-gram lookup pay here, and how deep; "keep the baseline" is as good an answer as any.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tuner.config.loader import load_study
from tuner.engines.vllm import VllmEngine
from tuner.search.loop import RunResult, run_study

VENV = Path(os.environ.get("TUNER_VLLM_VENV", "/nowhere"))
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(not VENV.is_dir(), reason="TUNER_VLLM_VENV names no environment"),
]
STUDY: dict[str, Any] = {
    "name": "vllm-cpu-ngram",
    "engine": {
        "kind": "vllm",
        "executable": str(VENV / "bin" / "python"),
        "model": str(VENV / "models" / "smollm2"),
        "args": {"dtype": "bfloat16", "max-model-len": 2048, "enforce-eager": True},
        "env": {"VLLM_CPU_KVCACHE_SPACE": "1"},
        "launch_timeout": "5m",
    },
    "space": {
        "parameters": {
            "method": {"flag": "speculative-config.method", "choices": ["off", "ngram"]},
            "k": {
                "flag": "speculative-config.num_speculative_tokens",
                "int": [1, 5], "when": "method == 'ngram'",
            },
            "lookup_max": {
                "flag": "speculative-config.prompt_lookup_max",
                "int": [2, 5], "when": "method == 'ngram'",
            },
        },
    },
    "workload": {
        "prompts": {"builtin": "mixed"}, "blocks": 2, "block_size": 4, "held_out": 8,
        "output_tokens": {"exactly": 24}, "load": [{"concurrency": 2}], "warm_up": 2,
    },
    "objective": {"maximize": "output_tokens_per_s", "constraints": ["error_rate == 0"]},
    "search": {"sampler": "model", "pruner": "none", "baseline_every": 0},
    "budget": {"launches": 5},
    "confirm": {"finalists": 1, "rounds": 2, "max_rounds": 2},
}  # fmt: skip


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "vllm-cpu-ngram.yaml"
    path.write_text(yaml.safe_dump(STUDY, sort_keys=False))
    return path


@pytest.fixture
def no_vllm_is_left() -> Iterator[None]:
    """After the test no process of a server may live, whoever its parent has become."""
    yield
    assert [p.info["name"] for p in psutil.process_iter(["name"]) if _is_ours(p)] == []


def _is_ours(process: psutil.Process) -> bool:
    try:
        marker = process.environ().get("TUNER_SERVER", "")
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
    return marker.startswith("vllm-cpu-ngram:") and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.usefixtures("no_vllm_is_left")
def test_a_study_from_baseline_to_verdict(study: Path) -> None:
    loaded = load_study(study)
    result = run_study(loaded)
    _check_trials(result)
    assert result.recommendation.verdict in ("use", "keep_baseline")
    assert not result.recommendation.is_simulated
    _check_export(result, loaded.config.engine)
    again = run_study(load_study(study))
    assert [record.number for record in again.records] == [r.number for r in result.records]


def _check_trials(result: RunResult) -> None:
    baseline, *trials = result.records
    assert (baseline.state, baseline.requested_args.flags.get("speculative-config")) == (
        "baseline", None,
    )  # fmt: skip
    assert baseline.effective_args["speculative-config.method"] == "none"
    assert baseline.acceptance is None
    measured = [record for record in trials if record.state == "complete"]
    assert len(measured) >= 1
    assert len({record.digest for record in measured}) == len(measured)
    for record in measured:
        spec = record.requested_args.flags["speculative-config"]
        assert record.effective_args["speculative-config.method"] == "ngram"
        assert record.acceptance is not None
        assert "decode steps" in record.acceptance.basis
        assert len(record.acceptance_per_position) == spec["num_speculative_tokens"]
        assert any("asynchronous scheduling" in warning for warning in record.warnings)
        assert record.metrics["error_rate"] == 0
        assert not record.is_synthetic


def _check_export(result: RunResult, config: Any) -> None:
    """What would be deployed reads back as the server that was measured."""
    engine = VllmEngine(config)
    for record in result.records:
        if record.state in ("baseline", "complete"):
            args = engine.parse_config(
                {"server.yaml": yaml.safe_dump(dict(record.requested_args.flags)),
                 "server.env": engine.render_config(_args(record))["server.env"]}
            )  # fmt: skip
            assert args == engine.parse_config(engine.render_config(_args(record)))
            assert args.digest == record.digest


def _args(record: Any) -> Any:
    from tuner.args import ServerArgs

    return ServerArgs(record.requested_args.flags, record.requested_args.env)


RUN = """
import sys
from pathlib import Path
from tuner.config.loader import load_study
from tuner.search.loop import run_study
run_study(load_study(Path(sys.argv[1])))
"""


@pytest.mark.usefixtures("no_vllm_is_left")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
def test_a_tuner_killed_while_a_server_starts_leaves_none(
    study: Path, how: signal.Signals
) -> None:
    root = str(Path(__file__).parents[2])
    tuner = subprocess.Popen(
        [sys.executable, "-c", RUN, str(study)],
        env={**os.environ, "PYTHONPATH": root},
        cwd=study.parent,
    )
    try:
        server = _server_of(study.parent, tuner)
        _wait_for(lambda: len(server.children(recursive=True)) >= 2, 120)
        family = [server, *server.children(recursive=True)]
        tuner.send_signal(how)
        tuner.wait(90)
        gone, alive = psutil.wait_procs(family, timeout=60)
        assert alive == []
        assert len(gone) >= 3
    finally:
        tuner.kill()
        tuner.wait(30)


def _server_of(folder: Path, tuner: subprocess.Popen[bytes]) -> psutil.Process:
    """The first server launched below a folder, once its launch is recorded."""
    found: list[psutil.Process] = []

    def launched() -> bool:
        assert tuner.poll() is None, "the tuner ended before it launched anything"
        for path in folder.rglob("server.json"):
            pid = json.loads(path.read_text()).get("pid", 0)
            if pid and psutil.pid_exists(pid):
                found.append(psutil.Process(pid))
        return bool(found)

    _wait_for(launched, 120)
    return found[0]


def _wait_for(condition: Any, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)
