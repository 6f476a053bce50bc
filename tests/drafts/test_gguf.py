"""GGUF drafts: what their header says, against a GGUF target."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tuner.drafts.inspect import inspect_draft
from tuner.drafts.opening import read_checkpoint
from tuner.errors import UsageError

WORDS = ["<s>", "</s>", *(f"w{n}" for n in range(254))]
META: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.embedding_length": 64,
    "llama.block_count": 2,
    "llama.context_length": 2048,
    "llama.attention.head_count": 4,
    "llama.rope.freq_base": 10_000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.tokens": WORDS,
}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<II", 4, value)


def write(
    path: Path, meta: Mapping[str, Any], tensors: Sequence[tuple[str, tuple[int, ...]]] = ()
) -> str:
    body = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta))
    body += b"".join(text(name) + entry(value) for name, value in meta.items())
    for name, dims in tensors:
        body += text(name) + struct.pack("<I", len(dims))
        body += b"".join(struct.pack("<Q", size) for size in dims) + struct.pack("<IQ", 0, 0)
    path.write_bytes(body)
    return str(path)


def rules(draft: str, target: str | None = None) -> dict[str, str]:
    return {each.rule: each.severity for each in inspect_draft(draft, target).findings}


@pytest.fixture
def draft(tmp_path: Path) -> str:
    return write(tmp_path / "draft.gguf", META, [("token_embd.weight", (64, 256))])


def test_the_header_is_read_as_a_configuration(draft: str) -> None:
    found = read_checkpoint(draft)
    assert found.config == {
        "architectures": ["llama (GGUF)"], "hidden_size": 64, "num_attention_heads": 4,
        "num_hidden_layers": 2, "max_position_embeddings": 2048, "rope_theta": 10_000.0,
        "rms_norm_eps": pytest.approx(1e-5), "vocab_size": 256,
    }  # fmt: skip
    assert found.tensors["token_embd.weight"].shape == (256, 64)
    assert inspect_draft(draft).method == "STANDALONE"


def test_a_folder_with_one_model_is_that_model(draft: str) -> None:
    (Path(draft).parent / "mmproj-x.gguf").write_bytes(b"GGUF")
    assert read_checkpoint(str(Path(draft).parent)).setting("hidden_size") == 64


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"llama.block_count": 30, "llama.embedding_length": 576}, {}),
        ({"tokenizer.ggml.tokens": [*WORDS, *(f"pad{n}" for n in range(100))]},
         {"tokenizers-agree": "error"}),
        ({"tokenizer.ggml.tokens": [*WORDS, *(f"pad{n}" for n in range(200))]},
         {"vocabularies-agree": "error", "tokenizers-agree": "error"}),
        ({"tokenizer.ggml.tokens": [f"x{n}" for n in range(256)]}, {"tokenizers-agree": "error"}),
        ({"llama.context_length": 8192}, {"context-reaches-the-target": "error"}),
    ],
)  # fmt: skip
def test_a_pair(
    draft: str, tmp_path: Path, changes: Mapping[str, Any], found: dict[str, str]
) -> None:
    target = write(tmp_path / "target.gguf", {**META, **changes})
    assert rules(draft, target) == found


def test_an_eagle3_head_is_no_standalone_draft(tmp_path: Path) -> None:
    meta = {"general.architecture": "eagle3", "eagle3.embedding_length": 64}
    found = inspect_draft(write(tmp_path / "e.gguf", meta))
    assert found.method == "EAGLE3"
    assert {each.rule for each in found.findings} == set()


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"GGU", b"version https://git-lfs", b"GGUF" + struct.pack("<I", 1),
        b"GGUF" + struct.pack("<IQQ", 3, 2**60, 1),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + b"\x05",
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 2**50),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 10) + b"short",
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 99),
    ],
)  # fmt: skip
def test_what_is_no_gguf_file_is_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    with pytest.raises(UsageError, match="must be a complete GGUF file"):
        read_checkpoint(str(path))
