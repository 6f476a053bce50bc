"""Canonical form, rules, arguments and drift are total: no value a user can write raises."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.args import ServerArgs
from tuner.config.engine import SglangConfig
from tuner.engines.base import EngineFacts
from tuner.engines.sglang import flags as F
from tuner.engines.sglang.canonical import canonical
from tuner.engines.sglang.effective import drift_of
from tuner.engines.sglang.engine import SglangEngine
from tuner.engines.sglang.render import argv_of
from tuner.engines.sglang.rules import violations

NAMES = [
    *sorted(F.KNOWN_SPECULATIVE),
    "attention-backend", "decode-attention-backend", "page-size", "tp-size", "pp-size", "nnodes",
    "device", "context-length", "chunked-prefill-size", "mamba-track-interval", "attn-dp-size",
    "enable-mixed-chunk", "enable-deterministic-inference", "enable-dp-attention",
]  # fmt: skip
WORDS = st.sampled_from(
    ["EAGLE3", "eagle", "NEXTN", "NGRAM", "DFLASH", "DSPARK", "STANDALONE", "FROZEN_KV_MTP", "UNO",
     "NONE", "none", "", "trtllm_mha", "flashmla", "cpu", "cuda", "3", "-1", "1e3", "nan", "True"]
)  # fmt: skip
VALUES = st.one_of(
    st.booleans(), st.integers(-3, 40), st.integers(), st.floats(), WORDS, st.text(max_size=8),
    st.lists(st.integers(), max_size=3), st.dictionaries(st.text(max_size=3), st.integers()),
)  # fmt: skip
FLAGS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=10)
ENV = st.dictionaries(
    st.sampled_from(["NCCL_ALGO", "NCCL_P2P_LEVEL", "NCCL_BUFFSIZE", "NCCL_NEW",
                     "SGLANG_SIMULATE_ACC_LEN", "SGLANG_ENABLE_PP_SPEC"]),
    st.none() | st.text(max_size=6),
)  # fmt: skip
CONFIG = st.fixed_dictionaries(
    {},
    optional={
        "architectures": st.sampled_from([None, [], ["LlamaForCausalLM"], "x", [3]]),
        "max_position_embeddings": VALUES,
        "rope_scaling": st.sampled_from([None, 3, {}, *({"factor": f} for f in ("x", None, 4))]),
        "vocab_size": VALUES,
        "draft_vocab_size": VALUES,
        "text_config": st.sampled_from([None, 3, {}, {"vocab_size": 3}]),
    },
)  # fmt: skip


@settings(max_examples=400)
@given(FLAGS, ENV, CONFIG, CONFIG)
def test_rules_judge_any_server(
    flags: dict[str, Any],
    env: dict[str, str | None],
    target: dict[str, Any],
    draft: dict[str, Any],
) -> None:
    args = canonical(ServerArgs(flags, env))
    assert canonical(args) == args
    facts = EngineFacts(target_config=target, draft_config=draft)
    for violation in violations(args, facts):
        assert violation.message
        assert violation.hint
        assert "\n" not in violation.message.replace("\\n", "")


@given(FLAGS, ENV)
def test_the_adapter_handles_any_server(flags: dict[str, Any], env: dict[str, str | None]) -> None:
    adapter = SglangEngine(SglangConfig(kind="sglang", model="/m"), inherited={})
    args = canonical(ServerArgs(flags, env))
    off = adapter.without_speculation(args)
    assert not adapter.is_speculative(off)
    assert not any(F.is_speculative_flag(name) for name in off.flags)
    assert adapter.draft_source(off) == "none"
    assert isinstance(adapter.is_synthetic(args), bool)
    assert isinstance(adapter.is_lossy(args), bool)
    assert all(isinstance(word, str) for word in argv_of(args))


@given(FLAGS, st.dictionaries(st.sampled_from(NAMES), st.none() | VALUES))
def test_drift_is_found_in_any_answer(flags: dict[str, Any], effective: dict[str, Any]) -> None:
    for drift in drift_of(canonical(ServerArgs(flags)), effective):
        assert drift.message
