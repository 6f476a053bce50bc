"""The rule table: how it counts, and a server that breaks each rule beside one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.config.engine import SglangConfig
from tuner.engines.base import EngineFacts
from tuner.engines.sglang.canonical import REWRITES, canonical, rewritten
from tuner.engines.sglang.engine import SglangEngine
from tuner.engines.sglang.rules import REFUSALS, rule_table, violations
from tuner.space import Parameter, SearchSpace, survey

EAGLE3 = {
    "speculative-algorithm": "EAGLE3",
    "speculative-draft-model-path": "/draft",
    "speculative-num-steps": 3,
    "speculative-eagle-topk": 4,
    "speculative-num-draft-tokens": 8,
}
NGRAM = {"speculative-algorithm": "NGRAM", "speculative-num-draft-tokens": 8}
DFLASH = {"speculative-algorithm": "DFLASH", "speculative-draft-model-path": "/draft"}
DSPARK = {"speculative-algorithm": "DSPARK"}
STANDALONE = {**EAGLE3, "speculative-algorithm": "STANDALONE"}
CHAIN = {**EAGLE3, "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 4}


def broken(flags: dict[str, Any], env: dict[str, str] | None = None, **facts: Any) -> set[str]:
    args = canonical(ServerArgs({"model-path": "/m", **flags}, env or {}))
    return {v.rule for v in violations(args, EngineFacts(**facts))}


def tuning_space() -> SearchSpace:
    return SearchSpace(
        (
            Parameter("steps", "int", tuple(range(1, 8)), flag="speculative-num-steps"),
            Parameter("topk", "categorical", (1, 2, 4, 8), flag="speculative-eagle-topk"),
            Parameter("draft", "categorical", (4, 8, 16, 32), flag="speculative-num-draft-tokens"),
        )
    )


def engine(**section: Any) -> SglangEngine:
    return SglangEngine(SglangConfig(kind="sglang", **{"model": "/m", **section}), inherited={})


def test_the_classic_space_is_counted_without_a_launch() -> None:
    adapter = engine(draft_model="/d", args={"speculative-algorithm": "EAGLE3"})
    space = tuning_space()
    found = survey(
        space,
        lambda point: adapter.canonicalize(point, space),
        lambda args: adapter.violations(args, EngineFacts()),
    )
    assert found.counts() == {
        "points": 112, "distinct": 71, "infeasible": 20, "duplicates": 21,
    }  # fmt: skip
    reasons = {tuple(sorted(point.items())): why for point, why in found.infeasible}
    assert reasons[(("draft", 8), ("steps", 1), ("topk", 2))] == ["draft 8 > 3 for steps=1 topk=2"]
    chain = [v.rule for v in adapter.rewrites({"steps": 3, "topk": 1, "draft": 8}, space)]
    assert chain == ["topk-1-is-a-chain"]


@pytest.mark.parametrize(("steps", "topk", "most"), [(1, 2, 3), (2, 2, 7), (3, 4, 37), (1, 8, 9)])
def test_a_tree_holds_so_many_tokens_and_no_more(steps: int, topk: int, most: int) -> None:
    def at(draft: int) -> set[str]:
        return broken({
            **EAGLE3, "speculative-num-steps": steps, "speculative-eagle-topk": topk,
            "speculative-num-draft-tokens": draft,
        })  # fmt: skip

    assert at(most) == set()
    assert at(most + 1) == {"tree-capacity"}


BROKEN: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("algorithm-known", {"speculative-algorithm": "EAGEL3"}, {}),
    ("draft-range", {**EAGLE3, "speculative-num-steps": 0}, {}),
    ("draft-range", {**EAGLE3, "speculative-num-draft-tokens": 1}, {}),
    ("all-three-or-none", {**CHAIN, "speculative-num-steps": None}, {}),
    ("all-three-or-none", {**EAGLE3, "speculative-num-draft-tokens": None}, {}),
    ("draft-path", {**EAGLE3, "speculative-draft-model-path": None}, {}),
    ("draft-path", {**CHAIN, "speculative-algorithm": "NEXTN",
                    "speculative-draft-model-path": None},
     {"target_config": {"architectures": ["LlamaForCausalLM"]}}),
    ("gemma-draft-is-nextn", CHAIN,
     {"draft_config": {"architectures": ["Gemma4AssistantForCausalLM"]}}),
    ("chain-only-backend", {**EAGLE3, "attention-backend": "trtllm_mha"}, {}),
    ("chain-only-backend", {**EAGLE3, "decode-attention-backend": "flashmla"}, {}),
    ("chain-only-backend", {**EAGLE3, "speculative-draft-attention-backend": "trtllm_mha"}, {}),
    ("paged-tree", {**EAGLE3, "page-size": 64, "attention-backend": "fa4"}, {}),
    ("paged-ngram", {**NGRAM, "page-size": 16, "attention-backend": "triton"}, {}),
    ("draft-backend", {**CHAIN, "attention-backend": "torch_native"}, {}),
    ("draft-backend", {**CHAIN, "attention-backend": "flex_attention"}, {}),
    ("rejection-sampling", {**EAGLE3, "speculative-use-rejection-sampling": True}, {}),
    ("rejection-sampling", {**CHAIN, "speculative-use-rejection-sampling": True,
                            "speculative-accept-threshold-acc": 0.9}, {}),
    ("rejection-sampling", {**CHAIN, "speculative-use-rejection-sampling": True},
     {"target_config": {"vocab_size": 128256}, "draft_config": {"draft_vocab_size": 32000}}),
    ("block-verification", {**STANDALONE, "speculative-use-block-verification": True}, {}),
    ("block-verification", {**CHAIN, "device": "cpu",
                            "speculative-use-block-verification": True}, {}),
    ("draft-window", {**CHAIN, "speculative-draft-window-size": 0}, {}),
    ("draft-window", {**CHAIN, "speculative-draft-sink-size": 4}, {}),
    ("draft-window", {**DFLASH, "speculative-num-draft-tokens": 16,
                      "speculative-draft-window-size": 8}, {}),
    ("draft-context", CHAIN, {"target_config": {"max_position_embeddings": 8192},
                              "draft_config": {"max_position_embeddings": 2048}}),
    ("same-vocabulary", STANDALONE, {"target_config": {"vocab_size": 320},
                                     "draft_config": {"vocab_size": 512}}),
    ("device", {**DFLASH, "device": "cpu"}, {}),
    ("attention-dp", {**STANDALONE, "attn-dp-size": 2}, {}),
    ("attention-dp", {**DFLASH, "enable-dp-attention": True}, {}),
    ("pipeline", {**CHAIN, "pp-size": 2}, {}),
    ("pipeline", {**CHAIN, "speculative-algorithm": "EAGLE", "pp-size": 2}, {}),
    ("one-node", {"nnodes": 2}, {}),
    ("chunk-of-pages", {"chunked-prefill-size": 1000, "page-size": 64}, {}),
    ("mamba-interval", {**EAGLE3, "mamba-track-interval": 4}, {}),
    ("dflash-block", {**DFLASH, "speculative-dflash-block-size": 8,
                      "speculative-num-draft-tokens": 16}, {}),
    ("dspark-block", {**DSPARK, "speculative-dspark-block-size": 7,
                      "speculative-num-draft-tokens": 7}, {}),
    ("ngram-corpus", {**NGRAM, "speculative-ngram-external-corpus-path": "/c",
                      "speculative-ngram-external-sam-budget": 8}, {}),
    ("ngram-breadth", {**NGRAM, "speculative-ngram-min-bfs-breadth": 4,
                       "speculative-ngram-max-bfs-breadth": 2}, {}),
    ("adaptive-steps", {**CHAIN, "speculative-adaptive": True, "speculative-num-steps": 4}, {}),
    ("nccl-deterministic", {"tp-size": 2, "enable-deterministic-inference": True,
                            "env:NCCL_ALGO": "Ring"}, {}),
    ("nccl-needs-ranks", {"env:NCCL_ALGO": "Ring"}, {}),
    ("nccl-value", {"tp-size": 2, "env:NCCL_PROTO": "Fast"}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "flags", "facts"), BROKEN)
def test_a_server_that_breaks_a_rule_is_named(
    rule: str, flags: dict[str, Any], facts: dict[str, Any]
) -> None:
    env = {k.removeprefix("env:"): v for k, v in flags.items() if k.startswith("env:")}
    plain = {k: v for k, v in flags.items() if not k.startswith("env:") and v is not None}
    assert rule in broken(plain, env, **facts)


def test_every_rule_but_the_capacity_has_an_example_above() -> None:
    assert {rule.name for rule in REFUSALS} - {name for name, _, _ in BROKEN} == {"tree-capacity"}


@pytest.mark.parametrize(
    "flags",
    [
        {},
        EAGLE3,
        CHAIN,
        NGRAM,
        {**EAGLE3, "page-size": 64, "attention-backend": "fa3"},
        {**CHAIN, "attention-backend": "trtllm_mha"},
        {**EAGLE3, "speculative-num-steps": 1, "speculative-eagle-topk": 8},
        {**DFLASH, "speculative-dflash-block-size": 16},
        {"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "/d"},
        {**CHAIN, "speculative-use-rejection-sampling": True},
        {"speculative-algorithm": "DSPARK", "speculative-dspark-block-size": 7},
        {**CHAIN, "speculative-num-steps": 5, "speculative-adaptive": True},
        {"tp-size": 8, **EAGLE3},
    ],
)
def test_a_legal_server_breaks_no_rule(flags: dict[str, Any]) -> None:
    assert broken(flags) == set()


def test_an_override_of_the_draft_context_is_respected() -> None:
    facts = {
        "target_config": {"max_position_embeddings": 8192},
        "draft_config": {"max_position_embeddings": 2048},
    }
    assert broken({**CHAIN, "context-length": 2048}, **facts) == set()
    assert broken(CHAIN, {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}, **facts) == set()


def flags_of(flags: dict[str, Any]) -> dict[str, Any]:
    return dict(canonical(ServerArgs(flags)).flags)


def test_rewrites_make_equal_servers_equal() -> None:
    assert flags_of({**CHAIN, "speculative-num-draft-tokens": 32}) == flags_of(CHAIN)
    assert flags_of({**DFLASH, "speculative-dflash-block-size": 8}) == flags_of(
        {**DFLASH, "speculative-num-draft-tokens": 8, "speculative-num-steps": 3}
    )
    assert flags_of(
        {**NGRAM, "speculative-eagle-topk": 4, "speculative-num-steps": 2}
    ) == flags_of({**NGRAM, "speculative-ngram-max-bfs-breadth": 10, "enable-mixed-chunk": True})
    assert flags_of({"--speculative_algorithm": "none", "speculative_num_steps": 3}) == {}
    assert flags_of({"tp": 8, "disable-radix-cache": False}) == {"tp-size": 8}


def test_each_rewrite_names_what_it_replaced() -> None:
    def names(flags: dict[str, Any]) -> list[str]:
        return [rule.name for rule in rewritten(ServerArgs(flags))]

    assert names({**CHAIN, "speculative-num-draft-tokens": 8}) == ["topk-1-is-a-chain"]
    assert names({**CHAIN, "speculative-algorithm": "NEXTN"}) == ["algorithm-alias"]
    assert names({**EAGLE3, "speculative-adaptive": True}) == ["adaptive-or-static"]
    assert names({**STANDALONE, "enable-mixed-chunk": True}) == ["mixed-chunk-off"]
    assert names({"speculative-num-steps": 3}) == ["off-has-no-draft"]
    assert names(EAGLE3) == []


@pytest.mark.parametrize("flags", [f for _, f, _ in BROKEN] + [EAGLE3, NGRAM, DFLASH, {}])
def test_the_canonical_form_is_its_own_canonical_form(flags: dict[str, Any]) -> None:
    once = canonical(ServerArgs({k: v for k, v in flags.items() if ":" not in k}))
    assert canonical(once) == once


def test_the_table_names_every_rule_with_source_and_version() -> None:
    table = rule_table()
    for rule in (*REWRITES, *REFUSALS):
        assert f"| {rule.name} |" in table
        assert rule.source in table
        assert "(0.5.23)" in rule.source or "2.27" in rule.source
    names = [rule.name for rule in (*REWRITES, *REFUSALS)]
    assert len(names) == len(set(names))


def test_the_generated_document_is_up_to_date() -> None:
    document = Path(__file__).parents[2] / "docs" / "rules-sglang.md"
    assert document.read_text() == rule_table()
