"""`tuner probe collectives`: what is probed, the table, the document; no GPU is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tuner.cli.app import build_app
from tuner.cli.collectives import (
    DEFAULT_SIZES,
    ProbeWish,
    ending_lines,
    nccl_choices,
    plan_probe,
    probe_document,
    probe_header,
    probe_line,
)
from tuner.config.loader import load_space
from tuner.config.shipped import SPACES, shipped_folder
from tuner.errors import UsageError
from tuner.host.collectives import CollectiveRow

ROOT = Path(__file__).parents[2]
RING = {"NCCL_ALGO": "Ring", "NCCL_PROTO": None}
UNSET = {"NCCL_ALGO": None, "NCCL_PROTO": None}


@pytest.fixture
def rows() -> list[CollectiveRow]:
    return [
        CollectiveRow(UNSET, 1024, 20.0, 22.0, 1.0),
        CollectiveRow(UNSET, 65536, 40.0, 44.0, 1.0),
        CollectiveRow(RING, 1024, 14.6, 16.0, 0.73),
        CollectiveRow(RING, 65536, 30.0, 33.0, 0.75),
        CollectiveRow({"NCCL_ALGO": "Tree", "NCCL_PROTO": None}, 1024, error="the ranks hang"),
        CollectiveRow({"NCCL_ALGO": "Tree", "NCCL_PROTO": None}, 65536, error="the ranks hang"),
    ]


def test_the_variables_of_a_space() -> None:
    shipped = load_space(shipped_folder(SPACES) / "nccl-nvlink.yaml")
    assert "nccl_only" in shipped
    choices = nccl_choices(shipped)
    assert choices["NCCL_ALGO"] == [None, "Ring", "Tree"]
    assert "disable-custom-all-reduce" not in choices


def test_a_study_says_what_is_probed() -> None:
    study = str(ROOT / "studies/kimi-k2.5-eagle3-8xpcie.yaml")
    plan = plan_probe(ProbeWish(study, python="/opt/python"))
    assert plan.settings.ranks == 8
    assert plan.settings.python == "/opt/python"
    assert plan.settings.sizes == DEFAULT_SIZES
    assert len(plan.candidates) == 3 * 3 * 4
    assert set(plan.candidates[0].values()) == {None}


def test_a_checkpoint_gives_the_message_sizes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 64}')
    wish = ProbeWish(model=str(tmp_path), ranks=2, space="shipped:nccl-pcie.yaml")
    assert plan_probe(wish).settings.sizes == tuple(128 * n for n in (1, 4, 8, 32, 64))
    (tmp_path / "config.json").write_text('{"hidden_size": 0}')
    with pytest.raises(UsageError, match="hidden_size must be a positive number"):
        plan_probe(wish)


def test_what_cannot_be_probed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be at least 2 GPUs"):
        plan_probe(ProbeWish(ranks=1))
    empty = tmp_path / "space.yaml"
    empty.write_text("parameters: {steps: {flag: steps, int: [1, 3]}}\n")
    with pytest.raises(UsageError, match="must have an NCCL variable to try"):
        plan_probe(ProbeWish(ranks=2, space=str(empty)))


def test_the_table(rows: list[CollectiveRow]) -> None:
    plan = plan_probe(ProbeWish(ranks=2, sizes=(1024, 65536)))
    assert probe_header(plan.settings) == "             1 KiB            64 KiB  environment"
    assert probe_line(rows[:2]) == "    20.0 µs  1.00x    40.0 µs  1.00x  nothing set"
    assert probe_line(rows[4:]).endswith("NCCL_ALGO=Tree; the ranks hang")
    assert ending_lines(rows) == [
        "Fastest at 64 KiB: NCCL_ALGO=Ring, 0.75x the time of NCCL's own choice.",
        "Not worth a launch: NCCL_ALGO=Tree",
        "A shorter all-reduce is not yet a faster server: measure it in a study.",
    ]


def test_the_document(rows: list[CollectiveRow]) -> None:
    plan = plan_probe(ProbeWish(ranks=2, sizes=(1024, 65536)))
    document = probe_document(plan, rows)
    assert document["ranks"] == 2
    assert document["rows"][2] == {
        "environment": RING, "bytes": 1024, "median_us": 14.6, "p95_us": 16.0, "ratio": 0.73,
        "error": "",
    }  # fmt: skip
    assert document["hopeless"] == [{"NCCL_ALGO": "Tree", "NCCL_PROTO": None}]


PYTHON = """#!/bin/sh
echo 'TUNER-COLLECTIVES {answer}'
"""


def run(tmp_path: Path, answer: dict[str, Any], *arguments: str) -> Any:
    """The command with an interpreter that always gives this answer."""
    python = tmp_path / "python"
    python.write_text(PYTHON.format(answer=json.dumps(answer)))
    python.chmod(0o755)
    space = tmp_path / "space.yaml"
    space.write_text("parameters: {algo: {env: NCCL_ALGO, choices: [unset, Ring]}}\n")
    words = ["--ranks", "2", "--bytes", "1024", "--space", str(space), "--python", str(python)]
    return CliRunner().invoke(build_app(), ["probe", "collectives", *words, *arguments])


def test_the_command(tmp_path: Path) -> None:
    row = {"bytes": 1024, "seconds": [2e-5] * 3, "correct": True}
    found = run(tmp_path, {"rows": [row], "error": ""})
    assert found.exit_code == 0, found.stderr
    assert found.stdout.splitlines()[1].endswith("nothing set")
    document = json.loads(run(tmp_path, {"rows": [row], "error": ""}, "--json").stdout)
    assert [row["ratio"] for row in document["rows"]] == [1.0, 1.0]


def test_a_probe_that_cannot_work_stops_at_the_first_environment(tmp_path: Path) -> None:
    found = run(tmp_path, {"rows": [], "error": "no torch"})
    assert found.exit_code == 3
    assert "all-reduce must work with nothing set, got: no torch." in found.stderr
