"""The starter study: commented, accepted by the loader, nothing overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import typer
from typer.testing import CliRunner

from tuner.cli.app import build_app
from tuner.cli.asking import complete
from tuner.cli.dimensions import scalar
from tuner.cli.init import Wish, write_starter
from tuner.cli.starter import ENGINES
from tuner.cli.surroundings import Surroundings, look_around
from tuner.config.loader import load_study
from tuner.errors import UsageError
from tuner.host.topology import Topology
from tuner.measure.prompts import build_workload
from tuner.space import build_space

Golden = Callable[[str, str], None]

ALONE = Surroundings("llamacpp")
PCIE = Surroundings("sglang", 7, Topology(7, {(0, 1): "SYS"}))

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
    wish = Wish(tmp_path, engine, "/models/Big Model", draft, tp=8)
    study, prompts, schema = write_starter(wish, ALONE)
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
    jsonschema.Draft202012Validator.check_schema(json.loads(schema.read_text()))
    assert study.read_text().startswith(f"# yaml-language-server: $schema={schema.name}\n")
    text = study.read_text().replace(str(tmp_path), "DIR")
    golden(f"init-{engine}{'-draft' if draft else ''}", text)


def test_your_own_prompts_are_named_not_copied(tmp_path: Path) -> None:
    paths = write_starter(Wish(tmp_path, "llamacpp", prompts="/data/my traffic.jsonl"), ALONE)
    assert [path.name for path in paths] == ["study.yaml", "study.schema.json"]
    assert 'prompts: {file: "/data/my traffic.jsonl"}' in paths[0].read_text()


def test_nothing_is_overwritten_unless_forced(tmp_path: Path) -> None:
    write_starter(Wish(tmp_path, "vllm"), ALONE)
    with pytest.raises(UsageError, match="must not exist, got a file"):
        write_starter(Wish(tmp_path, "sglang"), ALONE)
    assert "kind: vllm" in (tmp_path / "study.yaml").read_text()
    write_starter(Wish(tmp_path, "sglang", force=True), ALONE)
    assert "kind: sglang" in (tmp_path / "study.yaml").read_text()


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be sglang, vllm or llamacpp, got 'trt'"):
        write_starter(Wish(tmp_path, "trt"), ALONE)
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
        "study.schema.json",
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


def test_gpus_give_size_and_collectives(tmp_path: Path) -> None:
    study = write_starter(Wish(tmp_path, model="/models/m"), PCIE)[0]
    loaded = load_study(study)
    assert loaded.config.engine.kind == "sglang"
    assert loaded.config.engine.args["tp-size"] == 4
    assert "nccl_proto" in loaded.parameters
    why = "7 GPUs, PCIe only, farthest pair between NUMA nodes: how they reduce matters"
    assert f"- shipped:nccl-pcie.yaml   # {why}" in study.read_text().replace('"', "")


@pytest.mark.parametrize(
    ("engine", "args", "topology"),
    [
        ("sglang", {"tp-size": 8}, Topology(8, {(0, 1): "NV18"})),
        ("sglang", {"tp-size": 1}, Topology(8, {(0, 1): "SYS"})),
        ("llamacpp", {}, Topology(8, {(0, 1): "SYS"})),
        ("vllm", {"tensor-parallel-size": 8}, None),
    ],
)
def test_collectives_are_left_alone_where_they_do_not_matter(
    engine: str, args: dict[str, int], topology: Topology | None
) -> None:
    assert Surroundings(engine, 8, topology).spaces_for(engine, args) == ()


@pytest.mark.parametrize(("gpus", "tp"), [(0, 1), (1, 1), (2, 2), (6, 4), (8, 8)])
def test_a_tensor_parallel_size_divides_attention_heads(gpus: int, tp: int) -> None:
    assert Surroundings("vllm", gpus).tp == tp


@pytest.mark.parametrize(
    ("installed", "engine"),
    [("vllm", "vllm"), ("sglang", "sglang"), ("llama-server", "llamacpp"), ("", "llamacpp")],
)
def test_the_installed_engine_is_proposed(installed: str, engine: str) -> None:
    if not look_around(lambda name: None).gpus:
        assert look_around(lambda name: name if name == installed else None).engine == engine


def test_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    app, answers = typer.Typer(), list[Wish]()

    @app.command()
    def ask() -> None:
        answers.append(complete(Wish(tmp_path), PCIE))

    done = CliRunner().invoke(app, input="vllm\n/models/m\n\n/data/traffic.jsonl\n")
    assert done.exit_code == 0
    assert "Engine (sglang, vllm, llamacpp) [sglang]:" in done.stderr
    assert "Engine" not in done.stdout
    assert answers == [Wish(tmp_path, "vllm", "/models/m", "", "/data/traffic.jsonl")]
    assert complete(Wish(tmp_path, model="/m"), PCIE) == Wish(tmp_path, model="/m")
