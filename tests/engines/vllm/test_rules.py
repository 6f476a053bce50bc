"""The rule table: every rule is broken by something and kept by a sound server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.engines.base import EngineFacts
from tuner.engines.vllm.case import Case
from tuner.engines.vllm.rules import RULES, broken_rules, rules_markdown

NGRAM = {
    "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2,
}  # fmt: skip
EAGLE = {"method": "eagle3", "model": "/d", "num_speculative_tokens": 3}
DRAFT = {"method": "draft_model", "model": "/d", "num_speculative_tokens": 3}
TABLE = "num_speculative_tokens_per_batch_size"
KNOWN = EngineFacts(
    version="0.32.0",
    flags=frozenset({"max-num-seqs", "speculative-config", "tensor-parallel-size"}),
    values={"methods": ["ngram", "eagle3", "mtp"], "fields": [*NGRAM, "model"],
            "has_arctic_inference": False},
)  # fmt: skip


def broken(
    spec: Mapping[str, Any] | str | None = None, facts: EngineFacts | None = None, **flags: Any
) -> list[str]:
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    held = named if spec is None else {**named, "speculative-config": spec}
    args = ServerArgs({"model": "m", **held})
    return [violation.rule for violation in broken_rules(Case(args, facts or EngineFacts()))]


@pytest.mark.parametrize(
    ("rule", "spec", "flags"),
    [
        ("speculative-config", "{'method': 'ngram'}", {}),
        ("draft-tp-name", {**EAGLE, "tensor_parallel_size": 2}, {}),
        ("draft-tokens-given", {"method": "eagle3", "model": "/d"}, {}),
        ("draft-tokens-positive", {**EAGLE, "num_speculative_tokens": 0}, {}),
        ("draft-tokens-positive", {**EAGLE, "num_speculative_tokens": True}, {}),
        ("needs-model", {"method": "medusa", "num_speculative_tokens": 3}, {}),
        ("lookup-window", {**NGRAM, "prompt_lookup_min": 5}, {}),
        ("lookup-window", {**NGRAM, "prompt_lookup_min": 0}, {}),
        ("draft-tp", {**EAGLE, "draft_tensor_parallel_size": 2}, {"tensor_parallel_size": 8}),
        ("mixed-vocabulary-greedy",
         {**DRAFT, "use_heterogeneous_vocab": True, "draft_sample_method": "probabilistic"}, {}),
        ("draft-length", {**DRAFT, "max_model_len": 4096}, {"max_model_len": 2048}),
        ("schedule-form", {**NGRAM, TABLE: [[2, 4, 1]]}, {}),
        ("schedule-limit", {"method": "mtp", TABLE: [[1, 4, 1]]}, {}),
        ("schedule-without-dp", {**NGRAM, TABLE: [[1, 4, 1]]}, {"data_parallel_size": 2}),
        ("suffix-ranges",
         {"method": "suffix", "num_speculative_tokens": 8, "suffix_decoding_min_token_prob": 1.5},
         {}),
        ("async-scheduling", NGRAM, {"async_scheduling": True}),
        ("async-scheduling", {**EAGLE, "disable_padded_drafter_batch": True},
         {"async_scheduling": True}),
        ("synthetic", {**EAGLE, "synthetic_acceptance_length": 2}, {}),
        ("synthetic", {**EAGLE, "rejection_sample_method": "synthetic"}, {}),
        ("synthetic", {**EAGLE, "rejection_sample_method": "synthetic",
                       "synthetic_acceptance_length": 4.5}, {}),
        ("synthetic", {**EAGLE, "rejection_sample_method": "synthetic",
                       "synthetic_acceptance_rates": [0.9, 0.95, 0.1]}, {}),
        ("synthetic", {**EAGLE, "rejection_sample_method": "synthetic",
                       "synthetic_acceptance_rates": [1.2, 0.5, 0.1]}, {}),
        ("one-host", None, {"nnodes": 2}),
        ("plain-http", None, {"api_key": "secret"}),
        ("statistics", NGRAM, {"disable_log_stats": True}),
        ("draft-slots", {**EAGLE, "parallel_drafting": True}, {"max_num_batched_tokens": 3}),
        ("draft-slots", DRAFT, {"max_num_batched_tokens": 1}),
        ("lora-budget", NGRAM,
         {"enable_lora": True, "max_num_batched_tokens": 1024, "max_num_seqs": 512}),
        ("per-request-metrics", None, {"per_request_spec_decode_metrics": "summary"}),
    ],
)  # fmt: skip
def test_broken(rule: str, spec: Any, flags: dict[str, Any]) -> None:
    assert broken(spec, **flags) == [rule]


@pytest.mark.parametrize(
    ("spec", "flags"),
    [
        (None, {"nnodes": 1, "disable_log_stats": True}),
        (NGRAM, {"max_num_batched_tokens": 8192, "data_parallel_size": 2}),
        ({**EAGLE, "draft_tensor_parallel_size": 1}, {"tensor_parallel_size": 8,
                                                      "async_scheduling": True}),
        ({**NGRAM, TABLE: [[1, 8, 3], [9, 64, 0]]}, {}),
        ({**EAGLE, "rejection_sample_method": "synthetic",
          "synthetic_acceptance_length": 2.5}, {}),
        ({"method": "mtp"}, {}),
        (DRAFT, {"max_model_len": 2048}),
    ],
)  # fmt: skip
def test_kept(spec: Any, flags: dict[str, Any]) -> None:
    assert broken(spec, **flags) == []


def test_unknown_facts_refuse_nothing() -> None:
    assert broken({**EAGLE, "method": "brand_new", "some_field": 1}, some_flag=1) == []


def test_the_installed_version_decides_what_is_known() -> None:
    assert broken({**EAGLE, "method": "dflash"}, KNOWN) == ["method-known"]
    assert broken({"method": "suffix"}, KNOWN) == ["method-known", "suffix-installed"]
    assert broken({**NGRAM, "promt_lookup_max": 3}, KNOWN) == ["field-known"]
    assert broken(NGRAM, KNOWN, max_num_seq=3) == ["flag-known"]
    assert broken(NGRAM, KNOWN, max_num_seqs=3) == []


def test_an_interpreter_without_vllm_is_named() -> None:
    said = "Traceback …\nModuleNotFoundError: No module named 'vllm'\n"
    assert broken(None, EngineFacts(outputs={"facts": said})) == ["installed"]


def test_a_misspelled_name_comes_with_its_neighbour() -> None:
    args = ServerArgs({"speculative-config": {**NGRAM, "promt_lookup_max": 3}, "max-num-seq": 3})
    messages = [violation.message for violation in broken_rules(Case(args, KNOWN))]
    assert messages == [
        "'promt_lookup_max' is no field of the installed vLLM, did you mean 'prompt_lookup_max'?",
        "max-num-seq is no flag of the installed vLLM, did you mean max-num-seqs?",
    ]


def test_vocabularies_are_compared_for_draft_models_only() -> None:
    facts = EngineFacts(
        target_config={"text_config": {"vocab_size": 128256}}, draft_config={"vocab_size": 32000}
    )
    assert broken(DRAFT, facts) == ["same-vocabulary"]
    assert broken({**DRAFT, "use_heterogeneous_vocab": True}, facts) == []
    assert broken(EAGLE, facts) == []


def test_a_speculators_checkpoint_is_no_target() -> None:
    facts = EngineFacts(target_config={"speculators_config": {"algorithm": "eagle3"}})
    assert broken(None, facts) == ["target-is-plain"]


def test_mtp_depth_is_a_multiple_of_the_layers() -> None:
    facts = EngineFacts(target_config={"model_type": "deepseek_v3", "num_nextn_predict_layers": 2})
    depths = {
        k: broken({"method": "mtp", "num_speculative_tokens": k}, facts) for k in (1, 2, 3, 4)
    }
    assert depths == {1: [], 2: [], 3: ["mtp-divisible"], 4: []}


def test_names_are_distinct_and_the_document_is_current() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    document = Path(__file__).parents[3] / "docs" / "rules-vllm.md"
    assert document.read_text() == rules_markdown(), "write rules_markdown() to docs/rules-vllm.md"
