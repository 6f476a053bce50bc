"""A real study's bundle: exported, started by its own script, asked, verified."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tuner.server.ports import free_port

Tuner = Callable[..., Any]
pytestmark = [pytest.mark.embedded, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def study(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two servers, a few short answers each: the baseline and one n-gram lookup."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # servers are started from this folder
    document = {
        "name": "small",
        "engine": {
            "kind": "llamacpp", "executable": "bundled", "model": str(model),
            "args": {"ctx-size": 2048, "parallel": 1, "threads": 1},
        },
        "space": {"parameters": {"method": {"flag": "spec-type", "choices": ["ngram-simple"]}}},
        "workload": {
            "prompts": {"builtin": "mixed", "categories": ["editing"]},
            "blocks": 1, "block_size": 2, "held_out": 2, "output_tokens": {"max": 16},
            "warm_up": 1,
        },
        "objective": {"maximize": "output_tokens_per_s"},
        "search": {"sampler": "random", "pruner": "none", "keep_going": True},
        "confirm": {"finalists": 1, "rounds": 2, "max_rounds": 2},
    }  # fmt: skip
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return "small.yaml"


def test_from_a_study_to_a_verified_server(
    tuner: Tuner, study: str, tmp_path: Path, wait_for: Callable[..., httpx.Response]
) -> None:
    done = tuner("run", study)
    assert done.exit_code == 0, done.stderr
    # A trial that looked slower, as one may on a busy machine, is a finalist when it is named.
    done = tuner("confirm", study, "1")
    assert done.exit_code == 0, done.stderr
    done = tuner("export", study, "--trial", "1", "--unconfirmed", "--out", "a bundle")
    assert done.exit_code == 0, done.stderr
    folder = tmp_path / "a bundle"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["server"]["effective"]["spec-type"] == "ngram-simple"
    assert set(manifest["digests"]) >= {"study", "prompts", "model"}
    assert len(manifest["evidence"]["launches"]["server"]) == 2
    _ask(folder, wait_for)
    _verify(tuner, folder)


def _ask(folder: Path, wait_for: Callable[..., httpx.Response]) -> None:
    """Start it as a user would, and have it write something."""
    port = free_port()
    with (folder.parent / "served.log").open("wb") as log:
        server = subprocess.Popen(
            [folder / "launch.sh"], env={**os.environ, "PORT": str(port)}, stdout=log, stderr=log
        )
        try:
            wait_for(f"http://127.0.0.1:{port}/health", server)
            answer = httpx.post(
                f"http://127.0.0.1:{port}/v1/chat/completions",
                json={"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8},
                timeout=60,
                trust_env=False,
            ).json()
        finally:
            server.terminate()
            server.wait(30)
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] > 0


def _verify(tuner: Tuner, folder: Path) -> None:
    """The same server with the same answers; how fast is the machine's business here."""
    done = tuner("verify", str(folder), "--json")
    document = json.loads(done.stdout)
    checks = {each["name"]: each for each in document["checks"]}
    assert checks["server"]["ok"] is True, document
    assert checks["outputs"]["ok"] is True, document
    assert 0.1 < document["ratio"] < 10
    assert document["differences"] == []
    assert done.exit_code == (0 if checks["speed"]["ok"] else 1)
