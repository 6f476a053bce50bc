"""How drafts are stored, laid out and cached: what is wrong is named, what is right is not."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.drafts.checkpoint import find_folder
from tuner.drafts.inspect import Inspection, inspect_draft
from tuner.drafts.opening import read_checkpoint
from tuner.errors import UsageError

Make = Callable[..., Any]


def rules(found: Inspection) -> dict[str, str]:
    return {each.rule: each.severity for each in found.findings}


def model(folder: Path, **config: Any) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def header(
    path: Path, tensors: dict[str, tuple[str, list[int]]], *, size: int | None = None
) -> None:
    """A safetensors file of these types and shapes, `size` bytes of data instead of all."""
    widths = {"BF16": 2, "F8_E4M3": 1, "F32": 4}
    found, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + widths[dtype] * int(np.prod(shape))
        found[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(found).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + (end if size is None else size))


# ---- good drafts raise no alarm --------------------------------------------------------------
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
    "vocab_size": 128_256, "max_position_embeddings": 131_072,
}  # fmt: skip


def llama_eagle3(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096,
        "intermediate_size": 14_336, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_hidden_layers": 1, "vocab_size": 128_256, "draft_vocab_size": 32_000,
        "max_position_embeddings": 131_072, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("draft", "target"),
    [
        (llama_eagle3(), LLAMA),
        (llama_eagle3(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}), LLAMA),
        (
            {"architectures": ["DeepseekV3ForCausalLMNextN"], "hidden_size": 7168,
             "num_nextn_predict_layers": 1, "vocab_size": 129_280},
            {"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
             "num_hidden_layers": 61, "vocab_size": 129_280},
        ),
        (
            {"architectures": ["Qwen3_5ForCausalLMMTP"], "hidden_size": 4096,
             "num_nextn_predict_layers": 1, "vocab_size": 151_936},
            {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "vocab_size": 151_936},
        ),
        (
            {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "vocab_size": 151_936},
            {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 5120, "vocab_size": 151_936},
        ),
    ],
    ids=["llama-eagle3", "llama-eagle3-with-ids", "deepseek-nextn", "qwen3-mtp", "standalone"],
)  # fmt: skip
def test_good_pairs(tmp_path: Path, draft: dict[str, Any], target: dict[str, Any]) -> None:
    folder, other = model(tmp_path / "draft", **draft), model(tmp_path / "target", **target)
    found = inspect_draft(folder, other).findings
    assert [each.rule for each in found if each.severity != "info"] == []


# ---- layer ids in the other convention -------------------------------------------------------
@pytest.mark.parametrize(
    ("ids", "wrong"),
    [([2, 16, 29], True), ([1, 15, 28], False), ([0, 14, 27], True), ([3, 10, 20], False)],
)
def test_ids_that_are_all_one_off(tmp_path: Path, ids: list[int], wrong: bool) -> None:
    config = llama_eagle3(eagle_config={"eagle_aux_hidden_state_layer_ids": ids})
    found = inspect_draft(model(tmp_path / "d", **config), model(tmp_path / "t", **LLAMA))
    assert (rules(found).get("ids-are-not-shifted") == "warning") is wrong
    if wrong:
        hint = next(f.hint for f in found.findings if f.rule == "ids-are-not-shifted")
        assert hint.endswith("write [1, 15, 28].")


def test_kimi_ids_one_off(draft: Make, target: Make, config: Make) -> None:
    shifted = config(eagle_config={"eagle_aux_hidden_state_layer_ids": [3, 31, 59]})
    found = inspect_draft(draft(shifted), target())
    (one,) = found.findings
    assert (one.rule, one.severity) == ("ids-are-not-shifted", "warning")
    assert one.hint.endswith("write [2, 30, 58].")


# ---- files -----------------------------------------------------------------------------------
def test_a_download_that_was_cut_off(draft: Make, target: Make) -> None:
    folder = Path(draft())
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 1)
    assert rules(inspect_draft(str(folder), target())) == {"files-are-whole": "error"}


def test_an_index_without_its_shard(draft: Make, target: Make) -> None:
    folder = Path(draft())
    index = {
        "weight_map": {"fc.weight": "model.safetensors", "norm.weight": "model-2.safetensors"}
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found = inspect_draft(str(folder), target())
    assert rules(found) == {"shards-are-there": "error"}
    assert "model-2.safetensors" in found.findings[0].message


def test_an_index_whose_shards_are_there(draft: Make, target: Make) -> None:
    folder = Path(draft())
    index = {"weight_map": {"fc.weight": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert rules(inspect_draft(str(folder), target())) == {}


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\x00", struct.pack("<Q", 2**62), struct.pack("<Q", 2**40) + b"{}",
        struct.pack("<Q", 100_000) + b"[" * 100_000, struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 60)
        + b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-8, 4]}}'[:60],
        b"version https://git-lfs.github.com/spec/v1",
    ],
)  # fmt: skip
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, raw: bytes) -> None:
    folder = Path(model(tmp_path / "d", **LLAMA))
    (folder / "model.safetensors").write_bytes(raw)
    with pytest.raises(UsageError, match="must be a complete safetensors file"):
        read_checkpoint(str(folder))


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    folder = Path(model(tmp_path / "d", **LLAMA))
    (folder / "model.safetensors").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match="must be a complete safetensors file"):
        read_checkpoint(str(folder))


# ---- precision and heads ---------------------------------------------------------------------
FP8 = {"fc.weight": ("F8_E4M3", [8, 24]), "norm.weight": ("BF16", [8])}


@pytest.mark.parametrize(
    ("tensors", "config", "found"),
    [
        (FP8, {}, "warning"),
        ({**FP8, "fc.weight_scale_inv": ("F32", [1, 1])}, {}, None),
        (FP8, {"quantization_config": {"quant_method": "fp8"}}, None),
        ({"fc.weight": ("BF16", [8, 24])}, {}, None),
    ],
)
def test_fp8_needs_its_scales(
    tmp_path: Path, tensors: Any, config: dict[str, Any], found: str | None
) -> None:
    folder = Path(model(tmp_path / "d", **llama_eagle3(**config)))
    header(folder / "model.safetensors", tensors)
    assert rules(inspect_draft(str(folder))).get("precision-has-scales") == found


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"draft_vocab_size": None}, "head-is-used"),
        ({"tie_word_embeddings": True}, "head-is-not-tied"),
    ],
)
def test_heads_that_are_not_what_they_seem(
    draft: Make, target: Make, config: Make, changes: dict[str, Any], rule: str
) -> None:
    assert rules(inspect_draft(draft(config(**changes)), target()))[rule] == "warning"


# ---- vocabulary maps -------------------------------------------------------------------------
def test_two_draft_tokens_for_one_target_token(draft: Make, target: Make) -> None:
    ids = np.sort(np.random.default_rng(1).choice(163_840, 32_000, replace=False))
    ids[10] = ids[11]
    found = inspect_draft(draft(d2t=ids - np.arange(32_000)), target())
    assert rules(found) == {"map-is-one-to-one": "warning"}
    assert found.findings[0].message.startswith("1 of 32,000 draft tokens")


def test_a_map_of_another_length(draft: Make, target: Make) -> None:
    found = rules(inspect_draft(draft(d2t=np.zeros(31_999, dtype=int)), target()))
    assert found["map-fits-the-head"] == "error"


# ---- the Hugging Face cache ------------------------------------------------------------------
@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two snapshots; `refs/main` names the older one."""
    entry = tmp_path / "hub" / "models--org--draft"
    for place, name in enumerate(("aaa", "bbb")):
        made = Path(model(entry / "snapshots" / name, hidden_size=place))
        os.utime(made / "config.json", (1000 + place, 1000 + place))
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text("aaa")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return entry


def test_the_cache_gives_what_its_reference_names(cache: Path) -> None:
    assert find_folder("org/draft").name == "aaa"
    assert find_folder(str(cache)).name == "aaa"


@pytest.mark.parametrize("reference", [None, "gone", "../../elsewhere"])
def test_without_a_good_reference_it_is_the_newest(cache: Path, reference: str | None) -> None:
    (cache / "refs" / "main").unlink()
    if reference is not None:
        (cache / "refs" / "main").write_text(reference)
    assert find_folder("org/draft").name == "bbb"


def test_the_files_of_a_snapshot_are_links_to_blobs(cache: Path, tmp_path: Path) -> None:
    blobs = cache / "blobs"
    blobs.mkdir()
    header(blobs / "f00", {"fc.weight": ("BF16", [8, 24])})
    (cache / "snapshots" / "aaa" / "model.safetensors").symlink_to(blobs / "f00")
    assert read_checkpoint("org/draft").tensors["fc.weight"].shape == (8, 24)
