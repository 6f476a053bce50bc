"""What a draft's files say, read as each engine reads them: ids, vocabularies, sizes, pairing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.drafts.checkpoint import Checkpoint, Tensor
from tuner.drafts.compare import Side, compare_sides, conclusions
from tuner.drafts.findings import Finding, Pair
from tuner.drafts.inspect import inspect_draft
from tuner.drafts.layer_ids import EMBEDDING, default_ids, sglang_captures, takes_input_ids
from tuner.drafts.pairing import RULES as PAIRING
from tuner.drafts.sizes import count_sizes, in_words
from tuner.drafts.vocabulary import RULES as VOCABULARY
from tuner.drafts.vocabulary import is_standalone


def checkpoint(config: dict[str, Any], **shapes: tuple[int, ...]) -> Checkpoint:
    """A checkpoint of its configuration and tensor shapes; `__` stands for a dot."""
    named = {name.replace("__", "."): shape for name, shape in shapes.items()}
    tensors = {
        name: Tensor(name, "BF16", shape, Path("none"), 0, 0) for name, shape in named.items()
    }
    return Checkpoint(Path("draft"), config, tensors)


def eagle(ids: object = None, **config: Any) -> Checkpoint:
    section = {} if ids is None else {"eagle_aux_hidden_state_layer_ids": ids}
    return checkpoint(
        {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": section, **config}
    )


def found(rules: Any, pair: Pair) -> dict[str, Finding]:
    return {finding.rule: finding for rule in rules for finding in rule(pair)}


# ---- which hidden states ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "architecture", "outputs", "rule"),
    [
        ([2, 30, 58], "DeepseekV3ForCausalLM", (1, 29, 57), "taken as inputs"),
        ([1, 29, 57], "DeepseekV3ForCausalLM", (1, 29, 57), "first id is 1"),
        ([0, 2, 30], "KimiK25ForConditionalGeneration", (EMBEDDING, 1, 29), "taken as inputs"),
        ([2, 30, 58], "LlamaForCausalLM", (2, 30, 58), "id + 1 is captured"),
        ([0, 30, 58], "Qwen3ForCausalLM", (0, 30, 58), "id + 1 is captured"),
        (None, "LlamaForCausalLM", (1, 29, 56), "the target's default"),
        ([], "DeepseekV3ForCausalLM", (1, 29, 56), "the target's default"),
    ],
)
def test_what_the_ids_capture(
    ids: object, architecture: str, outputs: tuple[int, ...], rule: str
) -> None:
    capture = sglang_captures(eagle(ids), architecture, 60)
    assert capture is not None
    assert capture.outputs == outputs
    assert capture.has_embedding is (EMBEDDING in outputs)
    assert rule in capture.rule


def test_without_ids_and_depth_nothing_is_claimed() -> None:
    assert sglang_captures(eagle(), "LlamaForCausalLM", None) is None
    assert sglang_captures(checkpoint({"eagle_config": [2, 30]}), "Llama", None) is None


@pytest.mark.parametrize("layers", [16, 32, 60, 61, 80])
def test_the_default_is_an_early_a_middle_and_a_late_layer(layers: int) -> None:
    early, middle, late = default_ids(layers)
    assert early < middle < late < layers
    assert (early, layers - late) == (2, 3)


def test_only_these_families_count_inputs() -> None:
    assert takes_input_ids("DeepseekV32ForCausalLM")
    assert takes_input_ids("KimiK25ForConditionalGeneration")
    assert not takes_input_ids("LlamaForCausalLM")
    assert not takes_input_ids("")


# ---- what is a draft -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "is_plain"),
    [
        ("LlamaForCausalLM", True),
        ("Qwen3MoeForCausalLM", True),
        ("LlamaForCausalLMEagle3", False),
        ("EagleLlamaForCausalLM", False),
        ("DeepseekV3ForCausalLMNextN", False),
        ("DeepSeekMTPModel", False),
        ("", False),
    ],
)
def test_an_ordinary_model_is_a_standalone_draft(architecture: str, is_plain: bool) -> None:
    assert is_standalone(Pair(checkpoint({"architectures": [architecture]}))) is is_plain


# ---- the pair --------------------------------------------------------------------------------

TARGET = {"hidden_size": 4096, "vocab_size": 1000, "max_position_embeddings": 8192,
          "rope_theta": 1e6, "rms_norm_eps": 1e-6}  # fmt: skip


def paired(target: dict[str, Any] | None = None, **draft: Any) -> Pair:
    return Pair(eagle([2, 30, 58], **draft), checkpoint({**TARGET, **(target or {})}))


@pytest.mark.parametrize(
    ("draft", "rule", "severity", "says"),
    [
        ({"hidden_size": 4096}, "hidden-sizes-agree", "", ""),
        ({"hidden_size": 2048}, "hidden-sizes-agree", "error", "2,048, the target gives 4,096"),
        ({"hidden_size": 2048, "target_hidden_size": 4096}, "hidden-sizes-agree", "", ""),
        ({"max_position_embeddings": 8192}, "context-reaches-the-target", "", ""),
        ({"max_position_embeddings": 8191}, "context-reaches-the-target", "error", "8,191"),
        ({"rope_theta": 1e6}, "rope_theta-agrees", "", ""),
        ({"rope_theta": 1e4}, "rope_theta-agrees", "info", "draft 10000.0, target 1000000.0"),
        ({"rms_norm_eps": 1e-5}, "rms_norm_eps-agrees", "info", "draft 1e-05, target 1e-06"),
        ({"num_nextn_predict_layers": 1}, "mtp-layers-exist", "", ""),
        ({"num_nextn_predict_layers": None}, "mtp-layers-exist", "error", "is None"),
    ],
)
def test_the_draft_beside_its_target(
    draft: dict[str, Any], rule: str, severity: str, says: str
) -> None:
    finding = found(PAIRING, paired(**draft)).get(rule)
    assert (finding.severity if finding else "") == severity
    assert finding is None or says in finding.message


@pytest.mark.parametrize(("longest", "is_named"), [(None, False), (8192, False), (8193, True)])
def test_the_workload_must_fit_the_drafts_context(longest: int | None, is_named: bool) -> None:
    pair = Pair(eagle(max_position_embeddings=8192), context_tokens=longest)
    assert ("context-reaches-the-workload" in found(PAIRING, pair)) is is_named


@pytest.mark.parametrize(
    ("flags", "config", "is_named"),
    [
        ({}, {}, False),
        ({"quantization": "fp8"}, {}, True),
        ({"quantization": "fp8"}, {"quantization_config": {"bits": 8}}, False),
        ({"quantization": "fp8", "speculative-draft-model-quantization": "unquant"}, {}, False),
        ({"speculative-draft-model-quantization": "fp8"}, {}, False),
    ],
)
def test_an_inherited_quantisation(
    flags: dict[str, Any], config: dict[str, Any], is_named: bool
) -> None:
    pair = Pair(eagle(**config), server_flags=flags)
    assert ("quantisation-is-meant" in found(PAIRING, pair)) is is_named


def test_a_standalone_drafts_vocabulary_must_agree_and_its_rope_need_not() -> None:
    draft = checkpoint(
        {"architectures": ["LlamaForCausalLM"], "vocab_size": 999, "rope_theta": 1.0}
    )
    pair = Pair(draft, checkpoint(TARGET))
    assert found(VOCABULARY, pair)["vocabularies-agree"].severity == "error"
    assert found(PAIRING, pair) == {}
    assert (
        found(VOCABULARY, paired(vocab_size=999, draft_vocab_size=None))[
            "vocabularies-agree"
        ].severity
        == "warning"
    )


# ---- vocabulary maps -------------------------------------------------------------------------


def test_a_small_map_that_grows_everywhere_may_be_right(draft: Any, config: Any) -> None:
    """Target ids 0, 2, 4, … of a tiny vocabulary: differences 0, 1, 2, … are no mistake."""
    inspection = inspect_draft(draft(config(draft_vocab_size=50), d2t=np.arange(50)))
    assert not [f for f in inspection.findings if f.rule.startswith("map-")]


@pytest.mark.parametrize("start", [0, 100_000])
def test_ids_in_runs_are_differences(draft: Any, start: int) -> None:
    """Most neighbours in a draft's vocabulary are neighbours in the target's."""
    runs = np.repeat(np.arange(0, 3200), 10) + start
    assert not [f for f in inspect_draft(draft(d2t=runs)).findings if f.rule.startswith("map-")]


# ---- sizes -----------------------------------------------------------------------------------


def test_a_head_of_the_full_vocabulary_is_the_targets_and_not_trained() -> None:
    shapes = {"embed_tokens__weight": (1000, 16), "fc__weight": (16, 48)}
    shared = count_sizes(checkpoint({"vocab_size": 1000}, **shapes, lm_head__weight=(1000, 16)))
    own = count_sizes(
        checkpoint(
            {"vocab_size": 1000, "draft_vocab_size": 300}, **shapes, lm_head__weight=(300, 16)
        )
    )
    assert (shared.total, shared.trainable) == (32_768, 768)
    assert (own.total, own.trainable, own.without_embeddings) == (21_568, 5_568, 768)
    assert own.arithmetic == (
        "embed_tokens.weight: 1,000 × 16 = 16.0 K",
        "fc.weight: 16 × 48 = 768",
        "lm_head.weight: 300 × 16 = 4.80 K",
    )


def test_maps_are_no_parameters() -> None:
    sizes = count_sizes(checkpoint({}, d2t=(300,), t2d=(1000,), fc__weight=(16, 48)))
    assert (sizes.total, sizes.trainable) == (768, 768)


def test_sizes_by_hand_without_weights() -> None:
    config = {"hidden_size": 8, "vocab_size": 100, "draft_vocab_size": 20, "intermediate_size": 32,
              "num_attention_heads": 2, "num_key_value_heads": 1}  # fmt: skip
    sizes = count_sizes(checkpoint(config))
    attention = 2 * 8 * 4 * (2 + 2 * 1) + 2 * 4 * 8  # q, k, v take 2 x hidden; o gives hidden
    body = 3 * 8 * 8 + attention + 3 * 8 * 32
    assert sizes.is_estimate
    assert sizes.without_embeddings == body
    assert (sizes.embedding, sizes.lm_head) == (800, 160)
    assert sizes.total == body + 960
    assert sizes.trainable == body + 160


@given(st.integers(1000, 10**14))
def test_words_are_within_half_a_digit_of_the_count(count: int) -> None:
    figure, word = in_words(count).split()
    scale = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[word]
    assert float(figure) * scale == pytest.approx(count, rel=0.0051)
    assert 1 <= float(figure) < 1000
    assert len(figure.replace(".", "")) == 3


# ---- two drafts ------------------------------------------------------------------------------

SHAPE = {"hidden_size": 7168, "num_hidden_layers": 1}


@pytest.mark.parametrize(
    ("a", "b", "effect", "note"),
    [
        ({"samples": 1e5}, {"samples": 1.4e5}, "same", ""),
        ({"samples": 1e5}, {"samples": 1.5e5}, "explains", "2 times more data"),
        ({"samples": 4e6}, {"samples": 1e5}, "explains", "40 times more data"),
        ({"samples": 1e5}, {}, "unknown", ""),
    ],
)
def test_training_data(a: Any, b: Any, effect: str, note: str) -> None:
    rows = {row.name: row for row in compare_sides(Side("a", **a), Side("b", **b))}
    assert (rows["training samples"].effect, rows["training samples"].note) == (effect, note)


@pytest.mark.parametrize(
    ("a", "b", "effect"),
    [
        ((2.1, 2.1), (3.2, 3.5), "unknown"),
        ((3.3, 3.6), (3.2, 3.5), "same"),
        ((3.5, 3.5), (3.2, 3.5), "same"),
        (None, (3.2, 3.5), "unknown"),
    ],
)
def test_acceptance_lengths(a: Any, b: Any, effect: str) -> None:
    (row,) = [
        row
        for row in compare_sides(Side("a", acceptance=a), Side("b", acceptance=b))
        if row.name == "acceptance length"
    ]
    assert row.effect == effect
    assert ("overlap" in row.note) is (effect == "same")


def test_what_follows_from_other_layers_and_more_layers() -> None:
    a = Side("a", SHAPE, layer_ids=(2, 30, 58))
    b = Side("b", {**SHAPE, "num_hidden_layers": 2}, layer_ids=(0, 2, 58))
    assert conclusions(a, b, compare_sides(a, b)) == [
        "Captured layers differ: [2, 30, 58] against [0, 2, 58]. Check this first."
    ]
    same = Side("c", SHAPE, layer_ids=(2, 30, 58))
    assert conclusions(a, same, compare_sides(a, same)) == [
        "Same architecture (hidden_size, num_hidden_layers): size and shape cannot explain a gap."
    ]
    json.dumps([row.to_json() for row in compare_sides(a, b)])
