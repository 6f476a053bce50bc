"""A study that was made with something else is refused field by field, before any launch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tuner = Callable[..., Any]
ROOT = Path(__file__).parents[2]
STUDY = """\
name: demo
engine:
  kind: fake
  executable: ./python
  model: ./weights.bin
  args: {}
space: {parameters: {steps: {flag: spec-steps, choices: [2]}}}
workload: {prompts: {builtin: mixed}, blocks: 2, block_size: 1, held_out: 2, warm_up: 0,
           output_tokens: {max: 2}}
objective: {maximize: output_tokens_per_s}
search: {sampler: random, pruner: none}
budget: {launches: 1}
confirm: {finalists: 1, rounds: 2}
fidelity: {compare: "off"}
"""
WRAPPER = '#!/bin/sh\n{first}exec {python} "$@"\n'
OTHER_VERSION = 'case "$*" in *--version) echo "fake 9.9"; exit;; esac\n'


def write_program(first: str = "") -> None:
    path = Path("python")
    path.write_text(WRAPPER.format(first=first, python=sys.executable))
    path.chmod(0o755)


def write_study(old: str = "", new: str = "") -> None:
    assert old in STUDY
    Path("demo.yaml").write_text(STUDY.replace(old, new) if old else STUDY)


@pytest.fixture
def measured(tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished study whose engine and model are files of this folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    write_program()
    Path("weights.bin").write_bytes(b"weights")
    write_study()
    found = tuner("run", "demo.yaml")
    assert found.exit_code == 0, found.stderr


def refused(tuner: Tuner) -> list[str]:
    """The differences that `tuner run` lists; it must not have launched anything."""
    before = sorted(Path("results").rglob("server.log"))
    found = tuner("run", "demo.yaml")
    assert found.exit_code == 4, found.stderr
    assert found.stdout == ""
    assert sorted(Path("results").rglob("server.log")) == before
    lines = found.stderr.splitlines()
    at = lines.index("study demo was made with something else:")
    assert (
        lines[-1]
        == "  Restore what it was made with, or keep it and start afresh: tuner run --new"
    )
    return [line.strip() for line in lines[at + 1 : -1]]


def test_every_change_is_named_and_new_starts_afresh(
    tuner: Tuner, measured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {
        ("choices: [2]", "choices: [2, 3]"): ["space.parameters.steps"],
        ("maximize: output_tokens_per_s", "minimize: ttft_ms"): ["objective"],
        ("args: {}", "args: {ctx-size: 99}"): ["engine.args.ctx-size"],
        ("args: {}", "env: {NCCL_ALGO: Ring}"): ["engine.env.NCCL_ALGO"],
        ("block_size: 1", "block_size: 2"): ["workload.settings", "workload.prompts"],
    }
    for (old, new), fields in changes.items():
        write_study(old, new)
        listed = refused(tuner)
        assert {line.split(":")[0] for line in listed} >= set(fields), (new, listed)
        assert all(": stored " in line and ", now " in line for line in listed)

    write_study()
    Path("weights.bin").write_bytes(b"other weights")
    (line,) = refused(tuner)
    assert line.startswith("fingerprint.model: stored ")
    Path("weights.bin").write_bytes(b"weights")

    write_program(OTHER_VERSION)
    (line,) = refused(tuner)
    assert line.startswith("fingerprint.engine: stored fake ")
    assert line.endswith(", now fake fake 9.9")
    write_program()

    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    assert refused(tuner) == ["fingerprint.env.NCCL_P2P_DISABLE: stored absent, now 1"]
    monkeypatch.setenv("NCCL_TOKEN", "hunter2")  # a secret is neither compared nor shown
    assert refused(tuner) == ["fingerprint.env.NCCL_P2P_DISABLE: stored absent, now 1"]

    again = tuner("run", "demo.yaml", "--new")
    assert again.exit_code == 0, again.stderr
    assert Path("results/demo/generation-2/trials/0000/record.json").is_file()


def test_what_does_not_change_a_measurement_may_change(tuner: Tuner, measured: None) -> None:
    write_study("budget: {launches: 1}", "budget: {launches: 1, wall: 5h}")
    Path("demo.yaml").write_text(Path("demo.yaml").read_text().replace("random", "grid"))
    found = tuner("run", "demo.yaml")
    assert found.exit_code == 0, found.stderr
    assert "Resuming demo: 1 trials are stored" in found.stderr
