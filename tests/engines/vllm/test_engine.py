"""`VllmEngine` as its callers see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.engines.base import EngineFacts
from tuner.engines.vllm import VllmEngine
from tuner.measure.records import Prompt, Sampling
from tuner.space import SearchSpace

Make = Callable[..., VllmEngine]
PROMPT = Prompt("p1", ({"role": "user", "content": "Hello"},))


def test_points_that_start_one_server_are_one(make: Make, space: SearchSpace) -> None:
    engine = make(args={"max-num-seqs": 64})
    off = [
        engine.canonicalize({"method": "off", "tokens": k, "high": h, "low": 2}, space)
        for k in (1, 2, 3)
        for h in (2, 3)
    ]
    assert {args.digest for args in off} == {engine.fixed_args().digest}
    assert not any(engine.is_speculative(args) for args in off)
    five = engine.canonicalize({"method": "ngram", "tokens": 3, "high": 5, "low": 5}, space)
    default = engine.canonicalize({"method": "ngram", "tokens": 3}, space)
    assert five.digest == default.digest


def test_a_point_is_merged_into_the_fixed_arguments(make: Make, space: SearchSpace) -> None:
    engine = make(
        draft_model="/drafts/eagle3",
        args={"tensor-parallel-size": 8, "max-num-seqs": 32,
              "speculative-config": {"draft_tensor_parallel_size": 1}},
        env={"NCCL_ALGO": "Ring", "NCCL_DEBUG": None},
    )  # fmt: skip
    point = {"method": "eagle3", "tokens": 3, "seqs": "unset", "proto": "unset"}
    args = engine.canonicalize(point, space)
    assert args.to_json() == {
        "flags": {
            "model": "/models/target",
            "speculative-config": {
                "draft_tensor_parallel_size": 1, "method": "eagle3", "model": "/drafts/eagle3",
                "num_speculative_tokens": 3,
            },
            "tensor-parallel-size": 8,
        },
        "env": {"NCCL_ALGO": "Ring", "NCCL_DEBUG": None, "NCCL_PROTO": None},
    }  # fmt: skip
    assert engine.canonicalize({**point, "proto": "LL"}, space).env["NCCL_PROTO"] == "LL"


def test_the_baseline_is_the_same_server_without_speculation(
    make: Make, space: SearchSpace
) -> None:
    engine = make(args={"per-request-spec-decode-metrics": "summary", "seed": 3})
    args = engine.canonicalize({"method": "ngram", "tokens": 2, "proto": "LL"}, space)
    assert "per-request-spec-decode-metrics" in args.flags
    baseline = engine.without_speculation(args)
    assert baseline.flags == {"model": "/models/target", "seed": 3}
    assert baseline.env == args.env
    assert engine.fixed_args().flags == baseline.flags


def test_what_kind_of_drafting(make: Make, space: SearchSpace) -> None:
    engine = make(draft_model="/d")
    ngram = engine.canonicalize({"method": "ngram", "tokens": 2}, space)
    eagle = engine.canonicalize({"method": "eagle3", "tokens": 3}, space)
    off = engine.fixed_args()
    assert [engine.draft_source(a) for a in (ngram, eagle, off)] == ["lookup", "model", "none"]
    assert engine.complexity(off) < engine.complexity(ngram) < engine.complexity(eagle)
    spec = dict(eagle.flags["speculative-config"])  # type: ignore[arg-type]
    fake = eagle.replace({"speculative-config": {**spec, "rejection_sample_method": "synthetic"}})
    assert engine.is_synthetic(fake)
    assert engine.is_lossy(fake)
    assert not engine.is_synthetic(eagle)
    assert not engine.is_lossy(eagle)


def test_the_command_is_an_argument_vector(make: Make, space: SearchSpace) -> None:
    engine = make(env={"VLLM_CPU_KVCACHE_SPACE": "1"}, args={"enable-prefix-caching": False})
    args = engine.canonicalize({"method": "ngram", "tokens": 2, "high": 3, "low": 2}, space)
    command = engine.command(args, 8123)
    assert command.argv[:7] == (
        "/opt/vllm/bin/vllm", "serve", "/models/target", "--host", "127.0.0.1", "--port", "8123",
    )  # fmt: skip
    assert command.argv[7:9] == ("--no-enable-prefix-caching", "--speculative-config")
    assert json.loads(command.argv[9]) == args.flags["speculative-config"]
    assert command.env["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert command.env["VLLM_API_KEY"] is None
    assert command.env["VLLM_SERVER_DEV_MODE"] is None
    quiet = make(env={"VLLM_LOGGING_LEVEL": "WARNING"})
    assert quiet.command(quiet.fixed_args(), 1).env["VLLM_LOGGING_LEVEL"] == "WARNING"


def test_ready_means_a_model_by_name_and_real_tokens(make: Make) -> None:
    engine = make(args={"served-model-name": ["a", "b"]})
    probe = engine.probe(engine.fixed_args())
    assert (probe.health_path, probe.identity_path) == ("/health", "/v1/models")
    assert probe.expected_identity == ("a", "b")
    assert probe.generation.body["model"] == "a"
    assert probe.identity is not None
    assert probe.identity('{"object": "list", "data": [{"id": "a"}]}') == "a"
    assert [probe.identity(text) for text in ("", "[]", '{"data": []}')] == [None] * 3
    choice = {"message": {"content": "Yes"}}
    assert probe.generation.has_text({"choices": [choice], "usage": {"completion_tokens": 1}})
    for answer in ({"detail": "Not Found"}, [], {"choices": [choice]}, {"usage": None}):
        assert not probe.generation.has_text(answer)


@pytest.mark.parametrize("exact", [False, True])
def test_lengths_are_asked_for_without_changing_the_text(make: Make, exact: bool) -> None:
    engine = make()
    wire = engine.wire(engine.fixed_args())
    body = wire.body(PROMPT, Sampling(max_tokens=32, exact_tokens=exact))
    assert wire.path == "/v1/chat/completions"
    assert (body["model"], body["max_tokens"]) == ("/models/target", 32)
    assert body["stream_options"] == {"include_usage": True}
    assert body.get("ignore_eos", False) is exact
    assert "min_tokens" not in body


def test_last_chunks_carry_usage_and_per_request_metrics(make: Make) -> None:
    engine = make()
    wire = engine.wire(engine.fixed_args())
    usage = {
        "prompt_tokens": 41, "completion_tokens": 40, "total_tokens": 81,
        "prompt_tokens_details": {"cached_tokens": 32},
    }  # fmt: skip
    metrics = {"speculative_decoding": {"num_accepted_draft_tokens": 27}}
    delta = wire.parse({"choices": [], "usage": usage, "metrics": metrics})
    assert (delta.prompt_tokens, delta.output_tokens, delta.cached_tokens) == (41, 40, 32)
    assert delta.extra == {"metrics": metrics}
    assert wire.parse({"choices": [{"delta": {"content": "Hi"}}]}).text == "Hi"


def test_questions_before_launching(make: Make) -> None:
    engine = make(env={"CUDA_VISIBLE_DEVICES": "1"})
    command = engine.fact_commands()["facts"]
    assert command.argv[-1] == "facts"
    assert command.env["CUDA_VISIBLE_DEVICES"] == "1"
    assert engine.parse_facts({}) == engine.parse_facts({"facts": ""})
    assert engine.parse_facts({}).flags is None
    assert engine.preflight([]) is None
    asked = engine.preflight([engine.fixed_args()])
    assert asked is not None
    assert asked.argv[2:] == ("resolve", '["/models/target"]', "[]")
    assert engine.violations(engine.fixed_args(), EngineFacts()) == []


def test_what_is_deployed_reads_back(make: Make, space: SearchSpace) -> None:
    engine = make(draft_model="/drafts/é 3", env={"NCCL_P2P_LEVEL": "SYS"})
    args = engine.canonicalize({"method": "eagle3", "tokens": 3, "proto": "unset"}, space)
    files = engine.render_config(args)
    assert set(files) == {"server.yaml", "server.env"}
    assert "é" in files["server.yaml"]
    assert engine.parse_config(files) == args
    command = engine.deploy_command(args, "/srv/x")
    assert command.argv == ("/opt/vllm/bin/vllm", "serve", "--config", "/srv/x/server.yaml")


def test_text_fixed_as_it_was_given_is_kept(make: Make) -> None:
    args: dict[str, Any] = {"speculative-config": "{'method': 'ngram'}"}
    engine = make(args=args)
    assert engine.fixed_args().flags["speculative-config"] == "{'method': 'ngram'}"
    rules = [v.rule for v in engine.violations(engine.fixed_args(), EngineFacts())]
    assert rules == ["speculative-config"]


def test_a_canonical_server_is_its_own_canonical_form(make: Make, space: SearchSpace) -> None:
    engine = make(draft_model="/d")
    for method in ("off", "ngram", "eagle3"):
        args = engine.canonicalize({"method": method, "tokens": 2, "high": 4}, space)
        flags = {name: value for name, value in args.flags.items() if name != "model"}
        again = make(draft_model="/d", args=flags, env=dict(args.env)).fixed_args()
        assert again.digest == args.digest
        assert ServerArgs.from_json(args.to_json()) == args
