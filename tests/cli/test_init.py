"""The starter study: commented, accepted by the loader, nothing overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tuner.cli.app import build_app
from tuner.cli.dimensions import scalar
from tuner.cli.init import Wish, write_starter
from tuner.cli.starter import ENGINES
from tuner.config.loader import load_study
from tuner.errors import UsageError
from tuner.measure.prompts import build_workload
from tuner.space import build_space

Golden = Callable[[str, str], None]

ARGS = {
    ("sglang", False): {
        "tp-size": 8,
        "max-running-requests": 16,
        "speculative-algorithm": "NGRAM",
    },
    ("sglang", True): {
        "tp-size": 8,
        "max-running-requests": 16,
        "speculative-algorithm": "EAGLE3",
    },
    ("vllm", False): {
        "tensor-parallel-size": 8,
        "max-num-seqs": 16,
        "speculative-config": {"method": "ngram"},
    },
    ("vllm", True): {
        "tensor-parallel-size": 8,
        "max-num-seqs": 16,
        "speculative-config": {"method": "eagle3"},
    },
    ("llamacpp", False): {"ctx-size": 4096, "parallel": 1},
    ("llamacpp", True): {"ctx-size": 4096, "parallel": 1, "spec-type": "draft-simple"},
}


@pytest.mark.parametrize("draft", ["", "/models/draft"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_starter_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, draft: str, golden: Golden
) -> None:
    monkeypatch.chdir(tmp_path)
    study, prompts = write_starter(Wish(tmp_path, engine, "/models/Big Model", draft, tp=8))
    loaded = load_study(study)
    assert loaded.config.name == f"big-model-{engine}"
    assert loaded.config.engine.kind == engine
    assert loaded.config.engine.draft_model == (draft or None)
    assert loaded.config.engine.args == ARGS[engine, bool(draft)]
    space = build_space(loaded)
    assert len(list(space.points())) > 5
    assert space.start[0] in list(space.points())
    workload = build_workload(loaded.config.workload, 7)
    assert len(workload.blocks) == 6
    assert prompts.name == "prompts.jsonl"
    text = study.read_text().replace(str(tmp_path), "DIR")
    golden(f"init-{engine}{'-draft' if draft else ''}", text)


def test_your_own_prompts_are_named_not_copied(tmp_path: Path) -> None:
    (paths,) = [write_starter(Wish(tmp_path, "llamacpp", prompts="/data/my traffic.jsonl"))]
    assert [path.name for path in paths] == ["study.yaml"]
    assert 'prompts: {file: "/data/my traffic.jsonl"}' in paths[0].read_text()


def test_nothing_is_overwritten_unless_forced(tmp_path: Path) -> None:
    write_starter(Wish(tmp_path, "vllm"))
    with pytest.raises(UsageError, match="must not exist, got a file"):
        write_starter(Wish(tmp_path, "sglang"))
    assert "kind: vllm" in (tmp_path / "study.yaml").read_text()
    write_starter(Wish(tmp_path, "sglang", force=True))
    assert "kind: sglang" in (tmp_path / "study.yaml").read_text()


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be sglang, vllm or llamacpp, got 'trt'"):
        write_starter(Wish(tmp_path, "trt"))
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path: Path) -> None:
    arguments = ["init", str(tmp_path / "new"), "--engine", "llamacpp", "--model", "m.gguf"]
    found = CliRunner().invoke(build_app(), arguments)
    assert found.exit_code == 0, found.stderr
    assert found.stdout.splitlines()[-1] == f"Next: tuner check {tmp_path / 'new' / 'study.yaml'}"
    again = CliRunner().invoke(build_app(), [*arguments, "--force", "--json"])
    assert [Path(name).name for name in json.loads(again.stdout)["files"]] == [
        "study.yaml",
        "prompts.jsonl",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("/models/a-b", "/models/a-b"),
        ("on", '"on"'),
        ("No", '"No"'),
        ("1e3", '"1e3"'),
        ("a b", '"a b"'),
        ("", '""'),
        (True, "true"),
        (8, "8"),
        ({"method": "eagle3"}, '{"method": "eagle3"}'),
    ],
)
def test_scalars_read_alike_everywhere(value: object, text: str) -> None:
    assert scalar(value) == text
