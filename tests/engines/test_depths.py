"""Tables of draft depth by batch size, in every engine that reads one."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.args import ServerArgs
from tuner.config.engine import FakeConfig, LlamacppConfig, SglangConfig, VllmConfig
from tuner.engines.catalog import get_engine
from tuner.engines.depths import first_batches, halfway
from tuner.engines.sglang.adaptive import parse_adaptive
from tuner.export.launch import FOLDER
from tuner.server.fake.speed import Speculation, read_schedule

BEST = {1: 5, 8: 2, 32: 0}
MODELS = {"model": "/models/target", "draft_model": "/models/draft"}
EAGLE = {"speculative-algorithm": "EAGLE3", "speculative-num-steps": 3}


def sglang(**args: Any) -> tuple[Any, ServerArgs]:
    named = {name.replace("_", "-"): value for name, value in args.items()}
    engine = get_engine(SglangConfig(kind="sglang", **MODELS, args={**EAGLE, **named}))
    return engine, engine.fixed_args()


def vllm(tokens: int = 3, **args: Any) -> tuple[Any, ServerArgs]:
    spec = {"speculative-config.method": "eagle3",
            "speculative-config.num_speculative_tokens": tokens}  # fmt: skip
    config = VllmConfig(kind="vllm", executable="/opt/bin/python", **MODELS, args={**spec, **args})
    engine = get_engine(config)
    return engine, engine.fixed_args()


def fake(steps: int = 3) -> tuple[Any, ServerArgs]:
    engine = get_engine(FakeConfig(kind="fake", args={"spec-steps": steps}))
    return engine, engine.fixed_args()


@given(st.dictionaries(st.integers(1, 512), st.integers(0, 16), min_size=1))
def test_every_measured_batch_size_keeps_its_depth(best: dict[int, int]) -> None:
    table = first_batches(best)
    assert min(table) == 1
    for size, depth in best.items():
        assert table[max(first for first in table if first <= size)] == depth
    depths = list(table.values())
    assert all(a != b for a, b in pairwise(depths))


def test_a_depth_holds_up_to_halfway() -> None:
    assert halfway(2, 8) == 4
    assert first_batches({1: 5, 4: 5, 16: 1}) == {1: 5, 9: 1}
    with pytest.raises(ValueError, match="batch sizes must be >= 1"):
        first_batches({0: 1})


def test_sglang_pins_steps_slot_by_slot() -> None:
    engine, args = sglang()
    assert engine.depth(args) == 3
    table = engine.scheduled(args, BEST, "/results")
    assert parse_adaptive(table.files["adaptive.json"]) == {1: (5,), 3: (2,), 17: (0,)}
    assert table.args.flags["speculative-adaptive"] is True
    assert table.args.flags["speculative-adaptive-config"] == "/results/adaptive.json"
    assert table.args.flags["speculative-num-steps"] == 2
    assert engine.depth(table.args) is None


def test_an_sglang_table_beside_the_yaml_is_named_where_the_bundle_is() -> None:
    engine, args = sglang()
    table = engine.scheduled(args, BEST, "")
    files = engine.render_config(table.args)
    assert engine.parse_config(files) == table.args
    words = engine.deploy_command(table.args, FOLDER).argv
    assert words[words.index("--speculative-adaptive-config") + 1] == f"{FOLDER}/adaptive.json"


@pytest.mark.parametrize(
    "args",
    [
        {"speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8},
        {"speculative_algorithm": "NGRAM"},
        {"speculative_adaptive": True},
    ],
)
def test_sglang_trees_and_others_have_no_depth(args: dict[str, Any]) -> None:
    engine, server = sglang(**args)
    assert engine.depth(server) is None
    assert engine.scheduled(server, BEST, "") is None


def test_vllm_has_the_table_in_its_speculative_config() -> None:
    engine, args = vllm(**{"max-num-seqs": 64})
    assert engine.depth(args) == 3
    spec = engine.scheduled(args, BEST, "").args.flags["speculative-config"]
    assert spec["num_speculative_tokens"] == 5
    assert spec["num_speculative_tokens_per_batch_size"] == [[1, 2, 5], [3, 16, 2], [17, 64, 0]]
    files = engine.render_config(engine.scheduled(args, BEST, "").args)
    assert engine.parse_config(files) == engine.scheduled(args, BEST, "").args
    assert "per_batch_size" in files["server.yaml"]
    json.dumps(spec)


@pytest.mark.parametrize("make", [vllm, fake])
def test_servers_that_differ_in_depth_alone_give_one_table(make: Any) -> None:
    engine, three = make(3)
    _, five = make(5)
    assert three != five
    assert engine.scheduled(three, BEST, "") == engine.scheduled(five, BEST, "")


@pytest.mark.parametrize("make", [sglang, vllm, fake])
def test_without_speculation_the_depth_is_zero(make: Any) -> None:
    engine, args = make()
    baseline = engine.without_speculation(args)
    assert engine.depth(baseline) == 0
    assert engine.scheduled(baseline, BEST, "") is None
    assert engine.without_speculation(engine.scheduled(args, BEST, "").args) == baseline


def test_llama_server_has_no_table() -> None:
    engine = get_engine(LlamacppConfig(kind="llamacpp", executable="bundled", model="/m.gguf"))
    assert engine.depth(engine.fixed_args()) is None
    assert engine.scheduled(engine.fixed_args(), BEST, "") is None


def test_the_fake_server_follows_its_table() -> None:
    speculation = Speculation(5, 1, 6, read_schedule("1:5,3:2,17:0"))
    found = [(speculation.at(n).steps, speculation.at(n).verified) for n in (1, 2, 3, 16, 40)]
    assert found == [(5, 5), (5, 5), (2, 2), (2, 2), (0, 0)]
    assert Speculation(3, 1, 4).at(9).steps == 3
    for text in ("1", "a:b", "1:2:3"):
        with pytest.raises(ValueError):
            read_schedule(text)
