"""Drafts built to be wrong in each way: what fails loud and what lowers acceptance silently."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tuner.drafts.inspect import inspect_draft
from tuner.errors import UsageError


def rules(inspection) -> dict[str, str]:
    return {finding.rule: finding.severity for finding in inspection.findings}


def test_a_right_draft_has_no_finding(draft, target) -> None:
    inspection = inspect_draft(draft(), target())
    assert rules(inspection) == {}
    assert inspection.method == "EAGLE3"
    assert inspection.layer_ids == (2, 30, 58)
    assert inspection.capture.outputs == (1, 29, 57), "DeepSeek targets take inputs of layers"


def test_parameters_by_every_convention(draft) -> None:
    sizes = inspect_draft(draft()).sizes
    assert sizes.embedding == 163_840 * 7168
    assert sizes.lm_head == 32_000 * 7168
    assert sizes.total - sizes.trainable == sizes.embedding, "the embedding is frozen"
    assert sizes.without_embeddings == sizes.total - sizes.embedding - sizes.lm_head
    text = " ".join(sizes.arithmetic)
    assert "embed_tokens.weight: 163,840 × 7,168 = 1.17 B" in text
    assert "lm_head.weight: 32,000 × 7,168 = 229 M" in text


def test_sizes_from_the_configuration_agree_with_the_weights(draft, config, tmp_path) -> None:
    read = inspect_draft(draft()).sizes
    folder = tmp_path / "no-weights"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config()))
    estimated = inspect_draft(str(folder)).sizes
    assert estimated.is_estimate
    assert estimated.total == pytest.approx(read.total, rel=0.001)
    assert estimated.trainable == pytest.approx(read.trainable, rel=0.001)


def eagle(ids: object) -> dict[str, object]:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}}


@pytest.mark.parametrize(
    ("changes", "states", "rule", "severity"),
    [
        (eagle([0, 2, 30, 58]), 4, "embedding-is-not-captured", "warning"),
        (eagle([30, 2, 58]), 3, "ids-are-ascending", "warning"),
        (eagle([2, 2, 58]), 3, "ids-are-distinct", "warning"),
        (eagle([2, 30, 61]), 3, "ids-are-inside-the-target", "error"),
        (eagle([2, 30, 58]), 4, "fc-fits-the-ids", "error"),
        (eagle([2, 30]), 3, "fc-fits-the-ids", "error"),
        (
            {"eagle_config": "absent", "eagle_aux_hidden_state_layer_ids": [2, 30, 58]},
            3, "ids-in-eagle_config", "warning",
        ),
        ({"eagle_config": [2, 30, 58]}, 3, "eagle_config-is-a-mapping", "warning"),
        ({"draft_vocab_size": "absent"}, 3, "draft_vocab_size-is-declared", "error"),
        ({"draft_vocab_size": 16_000}, 3, "head-fits-the-vocabulary", "error"),
        ({"vocab_size": 163_842}, 3, "vocabularies-agree", "warning"),
        ({"max_position_embeddings": 2048}, 3, "context-reaches-the-target", "error"),
        ({"rms_norm_eps": 1e-6}, 3, "rms_norm_eps-agrees", "info"),
        ({"norm_before_fc": True}, 3, "options-have-weights", "warning"),
        ({"architectures": ["LlamaForCausalLM"]}, 3, "architecture-is-a-draft", "warning"),
        ({"architectures": "absent"}, 3, "architecture-is-named", "error"),
        ({"target_hidden_size": 4096}, 3, "hidden-sizes-agree", "error"),
    ],
)  # fmt: skip
def test_a_wrong_configuration_is_named(
    draft, target, config, shapes, changes, states, rule, severity
) -> None:
    inspection = inspect_draft(draft(config(**changes), shapes(states)), target())
    assert rules(inspection).get(rule) == severity


def test_the_founding_fault_is_named_before_a_gpu_is_touched(
    draft, target, config, shapes
) -> None:
    wrong = config(**eagle([0, 2, 30, 58]))
    found = inspect_draft(draft(wrong, shapes(4)), target()).findings
    fault = next(f for f in found if f.rule == "embedding-is-not-captured")
    assert "id 0 captures the embedding" in fault.message
    assert "47 % to 19 %" in fault.message
    assert fault.hint.startswith("Capture [2, 30, 58] alone")


def test_the_same_ids_mean_other_layers_on_other_targets(draft, config, tmp_path) -> None:
    llama = tmp_path / "llama"
    llama.mkdir()
    (llama / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 61})
    )
    inspection = inspect_draft(draft(config(**eagle([0, 30, 58]))), str(llama))
    assert inspection.capture.outputs == (0, 30, 58)
    assert "embedding-is-not-captured" not in rules(inspection)


@pytest.mark.parametrize(
    ("removed", "named"),
    [
        ({"fc__weight": None}, "fc.weight"),
        ({"norm__weight": None}, "norm.weight"),
        ({"lm_head__weight": None}, "lm_head.weight"),
        ({"midlayer__mlp__up_proj__weight": None}, "midlayer.mlp.up_proj.weight"),
    ],
)
def test_missing_weights_are_named(draft, shapes, removed, named) -> None:
    inspection = inspect_draft(draft(shapes=shapes(**removed)))
    finding = next(f for f in inspection.findings if f.rule == "weights-are-complete")
    assert named in finding.message
    assert finding.severity == "warning"


def test_weights_without_their_option(draft, shapes) -> None:
    extra = shapes(input_norm__weight=(3 * 7168,))
    assert rules(inspect_draft(draft(shapes=extra)))["weights-have-options"] == "warning"


def test_fc_of_another_target(draft, shapes) -> None:
    odd = shapes(fc__weight=(7168, 3 * 4096))
    assert rules(inspect_draft(draft(shapes=odd)))["fc-fits-hidden-size"] == "error"


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        (np.zeros(32_000), "map-is-not-zero"),
        (np.arange(32_000) * 5, "map-holds-differences"),
        (np.arange(32_000) * 3, "map-holds-differences"),  # each sum is a token of the target too
        (np.arange(32_000) - 5, "map-is-inside-the-vocabulary"),
        (np.full(32_000, 200_000), "map-is-inside-the-vocabulary"),
    ],
)
def test_wrong_vocabulary_maps(draft, values, rule) -> None:
    assert rule in rules(inspect_draft(draft(d2t=values)))


def test_a_reduced_vocabulary_without_a_map(draft) -> None:
    assert rules(inspect_draft(draft(d2t=None))) == {"reduced-vocabulary-has-a-map": "warning"}


def test_inherited_quantisation_and_the_workloads_context(draft, config) -> None:
    folder = draft(config(max_position_embeddings=4096))
    inspection = inspect_draft(
        folder, context_tokens=8000, server_flags={"quantization": "w4afp8"}
    )
    assert rules(inspection) == {
        "context-reaches-the-workload": "warning", "quantisation-is-meant": "warning",
    }  # fmt: skip
    told = {"quantization": "w4afp8", "speculative-draft-model-quantization": "unquant"}
    assert "quantisation-is-meant" not in rules(inspect_draft(folder, server_flags=told))


def test_an_mtp_head_of_no_layers(tmp_path: Path) -> None:
    folder = tmp_path / "mtp"
    folder.mkdir()
    config = {"architectures": ["DeepseekV3ForCausalLMNextN"], "num_nextn_predict_layers": 0}
    (folder / "config.json").write_text(json.dumps(config))
    assert rules(inspect_draft(str(folder))) == {"mtp-layers-exist": "error"}


def test_a_standalone_draft_needs_the_targets_tokenizer(tmp_path: Path) -> None:
    for name, word in (("draft", "a"), ("target", "b")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(
            json.dumps({"architectures": ["LlamaForCausalLM"], "vocab_size": 2})
        )
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {word: 0}}}))
    inspection = inspect_draft(str(tmp_path / "draft"), str(tmp_path / "target"))
    assert inspection.method == "STANDALONE"
    assert rules(inspection) == {"tokenizers-agree": "error"}


def test_errors_come_first_and_json_has_the_contract(draft, target, config) -> None:
    wrong = config(max_position_embeddings=2048, rms_norm_eps=1e-6, vocab_size=163_842)
    document = inspect_draft(draft(wrong), target()).to_json()
    severities = [finding["severity"] for finding in document["findings"]]
    assert severities == ["error", "warning", "info"]
    assert document["layer_ids"] == [2, 30, 58]
    assert {"total", "trainable", "embedding", "lm_head"} <= document["parameters"].keys()
    json.dumps(document)


def test_files_that_are_not_what_they_say(tmp_path: Path, draft) -> None:
    folder = Path(draft())
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(UsageError, match="complete safetensors file") as error:
        inspect_draft(str(folder))
    assert "LFS" in error.value.hint
    with pytest.raises(UsageError, match="must be a folder"):
        inspect_draft(str(tmp_path / "nowhere"))
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text("{not json")
    with pytest.raises(UsageError, match=r"config\.json: must be a JSON file"):
        inspect_draft(str(folder))


def test_pickled_weights_are_never_opened(tmp_path: Path, config) -> None:
    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config()))
    (folder / "pytorch_model.bin").write_bytes(b"not a pickle at all")
    finding = inspect_draft(str(folder)).findings[0]
    assert (finding.rule, finding.severity) == ("weights-are-there", "info")
    assert "pytorch_model.bin" in finding.message
