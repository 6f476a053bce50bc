"""The adapter itself: fixed arguments, points, baseline, facts, pre-flight, commands, marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.config.engine import SglangConfig
from tuner.engines.base import EngineFacts, Resolution
from tuner.engines.sglang.engine import SglangEngine
from tuner.engines.sglang.facts import parse_help, parse_version, unknown_flags
from tuner.space import Parameter, SearchSpace

DATA = Path(__file__).parent / "data" / "sglang"
SPACE = SearchSpace(
    (
        Parameter("algorithm", "categorical", ("unset", "EAGLE3"), flag="speculative-algorithm"),
        Parameter("steps", "int", (1, 2, 3), flag="speculative-num-steps"),
        Parameter("topk", "categorical", (1, 4), flag="speculative-eagle-topk"),
        Parameter("graphs", "int", (8, 16), flag="cuda-graph-config.decode.max_bs"),
        Parameter("algo", "categorical", ("unset", "Ring"), env="NCCL_ALGO"),
        Parameter("cache", "categorical", (True, False), flag="disable-radix-cache"),
        Parameter("switch", "categorical", (True, False), env="SGLANG_SWITCH"),
    )
)


def engine(inherited: dict[str, str] | None = None, **section: Any) -> SglangEngine:
    fields = {"model": "/m", "draft_model": "/d", "executable": "/py", **section}
    return SglangEngine(SglangConfig(kind="sglang", **fields), inherited=inherited or {})


def test_fixed_arguments_are_canonical_and_measure_with_metrics() -> None:
    args = engine(args={"tp": 8, "disable-radix-cache": False}, env={"A": "1"}).fixed_args()
    assert args == ServerArgs({"model-path": "/m", "enable-metrics": True, "tp-size": 8},
                              {"A": "1"})  # fmt: skip
    quiet = engine(args={"enable-metrics": False}).fixed_args()
    assert "enable-metrics" not in quiet.flags
    drafting = engine(args={"speculative-algorithm": "eagle3"}).fixed_args()
    assert drafting.flags["speculative-draft-model-path"] == "/d"
    assert drafting.flags["speculative-algorithm"] == "EAGLE3"


def test_a_point_sets_flags_nested_json_and_variables() -> None:
    adapter = engine(args={"cuda-graph-config": {"decode": {"backend": "full"}}})
    args = adapter.canonicalize(
        {"algorithm": "EAGLE3", "steps": 3, "topk": 1, "graphs": 8, "algo": "Ring",
         "cache": True, "switch": True}, SPACE,
    )  # fmt: skip
    assert args.flags["cuda-graph-config"] == {"decode": {"backend": "full", "max_bs": 8}}
    assert args.flags["speculative-num-draft-tokens"] == 4
    assert args.flags["disable-radix-cache"] is True
    assert args.env == {"NCCL_ALGO": "Ring", "SGLANG_SWITCH": "1"}
    off = adapter.canonicalize({"algorithm": "unset", "steps": 3, "algo": "unset"}, SPACE)
    assert not adapter.is_speculative(off)
    assert off.env == {"NCCL_ALGO": None}
    assert adapter.fixed_args().flags["cuda-graph-config"] == {"decode": {"backend": "full"}}


def test_json_given_as_text_takes_a_nested_value() -> None:
    adapter = engine(args={"cuda-graph-config": '{"decode": {"max_bs": 1}}'})
    args = adapter.canonicalize({"graphs": 16}, SPACE)
    assert args.flags["cuda-graph-config"] == {"decode": {"max_bs": 16}}


def test_the_baseline_is_the_same_server_without_drafting() -> None:
    adapter = engine(args={"speculative-algorithm": "NGRAM", "enable-mixed-chunk": True})
    drafting = adapter.canonicalize({"cache": True}, SPACE)
    assert "enable-mixed-chunk" not in drafting.flags
    baseline = adapter.without_speculation(drafting)
    assert dict(baseline.flags) == {
        "model-path": "/m", "enable-metrics": True, "disable-radix-cache": True,
        "enable-mixed-chunk": True,
    }  # fmt: skip


def test_who_drafts() -> None:
    adapter = engine()
    assert adapter.draft_source(ServerArgs()) == "none"
    assert adapter.draft_source(ServerArgs({"speculative-algorithm": "NGRAM"})) == "lookup"
    assert adapter.draft_source(ServerArgs({"speculative-algorithm": "NEXTN"})) == "model"


EAGLE3 = ServerArgs({"speculative-algorithm": "EAGLE3"})


@pytest.mark.parametrize(
    ("inherited", "env", "synthetic"),
    [
        ({}, {}, False),
        ({"SGLANG_SIMULATE_ACC_LEN": "2"}, {}, True),
        ({}, {"SGLANG_SIMULATE_ACC_LEN": "2.5"}, True),
        ({"SGLANG_SIMULATE_ACC_LEN": "2"}, {"SGLANG_SIMULATE_ACC_LEN": None}, False),
        ({"SGLANG_SIMULATE_ACC_LEN": "-1"}, {}, False),
        ({"SGLANG_SIMULATE_ACC_LEN": "two"}, {}, True),
    ],
)
def test_simulated_acceptance_is_marked(
    inherited: dict[str, str], env: dict[str, str | None], synthetic: bool
) -> None:
    adapter = engine(inherited, env=env)
    assert adapter.is_synthetic(EAGLE3.__class__(EAGLE3.flags, env)) is synthetic
    assert adapter.is_synthetic(ServerArgs({}, env)) is False


def test_thresholds_below_one_are_lossy() -> None:
    adapter = engine()
    name = "speculative-accept-threshold-single"
    assert adapter.is_lossy(EAGLE3.replace({name: 0.9}))
    assert not adapter.is_lossy(EAGLE3.replace({name: 1.0}))
    assert name in adapter.lossy_flags


def test_more_draft_tokens_are_more_complex() -> None:
    adapter = engine()
    small = adapter.canonicalize({"algorithm": "EAGLE3", "steps": 1, "topk": 1}, SPACE)
    large = adapter.canonicalize({"algorithm": "EAGLE3", "steps": 3, "topk": 1}, SPACE)
    assert adapter.complexity(adapter.fixed_args()) < adapter.complexity(small)
    assert adapter.complexity(small) < adapter.complexity(large)


def test_the_command_is_the_measured_route() -> None:
    adapter = engine(env={"A": "1"})
    command = adapter.command(adapter.fixed_args(), 30123)
    assert command.argv == (
        "/py", "-m", "sglang.launch_server", "--enable-metrics", "--model-path", "/m",
        "--host", "127.0.0.1", "--port", "30123",
    )  # fmt: skip
    assert command.env == {"A": "1"}
    deployed = adapter.deploy_command(ServerArgs({"disable-cuda-graph": True}), "/bundle")
    assert deployed.argv == (
        "/py", "-m", "sglang.launch_server", "--config", "/bundle/server.yaml",
        "--disable-cuda-graph",
    )  # fmt: skip


def test_ready_is_health_identity_and_a_generation() -> None:
    probe = engine().probe(ServerArgs({"model-path": "/m", "served-model-name": "kimi"}))
    assert (probe.health_path, probe.older_health_path) == ("/ready", "/health_generate")
    assert probe.expected_identity == ("/m", "kimi")
    assert probe.identity is not None
    assert probe.identity('{"object": "list", "data": [{"id": "kimi"}]}') == "kimi"
    for text in ("", "[]", "{}", '{"data": []}', '{"data": [3]}', '{"data": "x"}'):
        assert probe.identity(text) is None
    assert probe.generation.body["model"] == "kimi"


# ---- facts ---------------------------------------------------------------------------------
def test_flags_are_discovered_from_the_help_text() -> None:
    flags = parse_help((DATA / "help.txt").read_text())
    assert flags is not None
    assert {"tp-size", "tensor-parallel-size", "model", "speculative-num-steps"} <= flags
    assert {"no-enable-tf32-matmul", "disable-cuda-graph", "nccl-port"} <= flags
    assert "cuda-graph-max-bs" not in flags
    assert parse_help("command not found") is None


def test_the_version_is_the_last_one_printed() -> None:
    assert parse_version("a warning 1.2\n0.5.23\n") == "0.5.23"
    assert parse_version("0.5.10.post2\n") == "0.5.10.post2"
    assert parse_version("Traceback") == ""


def test_unknown_flags_are_named_with_what_was_meant() -> None:
    facts = engine().parse_facts({"help": (DATA / "help.txt").read_text(), "version": "0.5.23"})
    assert facts.version == "0.5.23"
    asked = ServerArgs({
        "cuda-graph-max-bs": 8, "speculative-num-stepz": 3, "tp-size": 1, "tp": 1, "zzz": 1,
    })  # fmt: skip
    found = {v.message.split()[0]: v for v in unknown_flags(asked, facts)}
    assert set(found) == {"cuda-graph-max-bs", "speculative-num-stepz", "zzz"}
    assert found["cuda-graph-max-bs"].hint == "Did you mean cuda-graph-max-bs-decode?"
    assert found["speculative-num-stepz"].hint == "Did you mean speculative-num-steps?"
    assert "SGLang 0.5.23" in found["zzz"].message
    assert unknown_flags(asked, EngineFacts()) == []


# ---- pre-flight ----------------------------------------------------------------------------
CHAIN = ServerArgs({
    "model-path": "/m", "speculative-algorithm": "EAGLE3", "speculative-num-steps": 3,
    "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 8,
})  # fmt: skip


def answer(*rows: dict[str, Any], **fields: Any) -> str:
    return "warning\nTUNER-PREFLIGHT " + json.dumps({"servers": rows, **fields}) + "\n"


def test_the_resolver_is_asked_once_for_all_servers() -> None:
    adapter = engine(env={"PYTHONPATH": "/shim"})
    command = adapter.preflight([CHAIN, ServerArgs({"tp-size": 2}, {"X": None})])
    assert command is not None
    assert command.argv[0] == "/py"
    assert Path(command.argv[1]).is_file()
    assert command.env == {"PYTHONPATH": "/shim"}
    rows = json.loads(command.stdin or "")["servers"]
    assert rows[1] == {"argv": ["--tp-size", "2"], "env": {"X": None}}
    assert adapter.preflight([]) is None


def test_overrides_become_the_canonical_form() -> None:
    common = {"model_path": "/m", "speculative_algorithm": "EAGLE3", "attention_backend": "triton",
              "speculative_num_steps": 3, "speculative_eagle_topk": 1}  # fmt: skip
    text = answer(
        {"resolved": {"speculative_num_draft_tokens": 4, "max_running_requests": 48}},
        common=common, assumed=["--attention-backend"],
    )  # fmt: skip
    (found,) = engine().parse_preflight(text, [CHAIN])
    assert found.canonical == CHAIN.replace({"speculative-num-draft-tokens": 4})
    assert found.effective["max-running-requests"] == 48
    assert "attention-backend" not in found.effective


def test_three_values_left_to_the_server_are_filled_in() -> None:
    asked = ServerArgs({"speculative-algorithm": "EAGLE3"})
    text = answer({"resolved": {"speculative_num_steps": 5, "speculative_eagle_topk": 4,
                                "speculative_num_draft_tokens": 8}})  # fmt: skip
    (found,) = engine().parse_preflight(text, [asked])
    assert found.canonical is not None
    assert found.canonical.flags["speculative-num-draft-tokens"] == 8


@pytest.mark.parametrize(
    ("kind", "error", "is_verdict"),
    [
        ("ValueError", "ValueError: trtllm_mha backend only supports topk = 1", True),
        ("AssertionError", "AssertionError: refused without a message", True),
        ("exit 2", "error: unrecognized arguments: --bogus 3", True),
        ("ValueError", "ValueError: TRTLLM MHA backend requires Hopper (SM90) GPUs.", False),
        ("OSError", "OSError: Repo id must be in the form 'a/b': '/nowhere'", False),
        ("ImportError", "ImportError: libcuda.so.1 cannot open", False),
        ("ValueError", "ValueError: Unrecognized model in /m.", False),
    ],
)
def test_only_what_is_about_the_configuration_is_a_verdict(
    kind: str, error: str, is_verdict: bool
) -> None:
    (found,) = engine().parse_preflight(answer({"kind": kind, "error": error}), [CHAIN])
    assert found == Resolution(error=error if is_verdict else "")


@pytest.mark.parametrize(
    "text", ["", "TUNER-PREFLIGHT {", "TUNER-PREFLIGHT []", answer(), answer({}, {}, {})]
)
def test_an_unreadable_answer_says_nothing(text: str) -> None:
    assert engine().parse_preflight(text, [CHAIN, CHAIN]) == [Resolution(), Resolution()]
