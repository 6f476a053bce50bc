"""Owns reading a GGUF file's header as a checkpoint: metadata and tensor shapes, no weights.

The format: ggml's docs/gguf.md. Knows no rule.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tuner.drafts.checkpoint import Checkpoint, Tensor
from tuner.errors import UsageError

MAGIC = b"GGUF"
MARK = " (GGUF)"
MOST_ENTRIES, MOST_BYTES = 10_000_000, 64 * 1024 * 1024
"""No real file has more; a corrupt count must not fill the memory."""

_NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9

_SETTINGS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "rope_theta": "rope.freq_base",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "num_nextn_predict_layers": "nextn_predict_layers",
}
"""Names of config.json by the GGUF key that follows the architecture."""


@dataclass(slots=True)
class _Reader:
    """Values of a GGUF file, one after the other."""

    handle: BinaryIO

    def number(self, code: str) -> Any:
        raw = self.handle.read(struct.calcsize(f"<{code}"))
        return struct.unpack(f"<{code}", raw)[0]

    def count(self, most: int) -> int:
        found = int(self.number("Q"))
        if found > most:
            raise ValueError(f"a count of {found:,}")
        return found

    def text(self) -> str:
        size = self.count(MOST_BYTES)
        raw = self.handle.read(size)
        if len(raw) != size:
            raise ValueError("a text that is cut off")
        return raw.decode(errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            inner, size = int(self.number("I")), self.count(MOST_ENTRIES)
            return [self.value(inner) for _ in range(size)]
        if kind not in _NUMBERS:
            raise ValueError(f"a value of type {kind}")
        return self.number(_NUMBERS[kind])


def read_gguf(file: Path) -> Checkpoint:
    """The checkpoint that a GGUF file holds.

    Raises:
        UsageError: the file is cut off or is no GGUF file.
    """
    try:
        with file.open("rb") as handle:
            meta, tensors = _read(handle, file)
    except (OSError, struct.error, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"{file}: must be a complete GGUF file, got {error}",
            "Download it again; a Git LFS pointer is not the file itself.",
        ) from error
    return Checkpoint(
        folder=file, config=_config(meta), tensors=tensors, tokenizer=_tokens_digest(meta)
    )


def _read(handle: BinaryIO, file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if handle.read(4) != MAGIC:
        raise ValueError("another first word than GGUF")
    reader = _Reader(handle)
    version = reader.number("I")
    if version not in (2, 3):
        raise ValueError(f"version {version}")
    count, entries = reader.count(MOST_ENTRIES), reader.count(MOST_ENTRIES)
    meta: dict[str, Any] = {}
    for _ in range(entries):
        name = reader.text()
        meta[name] = reader.value(int(reader.number("I")))
    return meta, dict(_tensor(reader, file) for _ in range(count))


def _tensor(reader: _Reader, file: Path) -> tuple[str, Tensor]:
    """GGUF lists dimensions the other way round: the innermost first."""
    name, rank = reader.text(), int(reader.number("I"))
    if rank > 8:
        raise ValueError(f"a tensor of {rank} dimensions")
    shape = tuple(int(reader.number("Q")) for _ in range(rank))[::-1]
    kind, _ = reader.number("I"), reader.number("Q")
    return name, Tensor(name, f"ggml-{kind}", shape, file, 0, 0)


def _config(meta: Mapping[str, Any]) -> dict[str, Any]:
    name = str(meta.get("general.architecture", ""))
    found: dict[str, Any] = {"architectures": [f"{_named(name)}{MARK}"] if name else []}
    for ours, theirs in _SETTINGS.items():
        value = meta.get(f"{name}.{theirs}")
        if isinstance(value, int | float) and math.isfinite(value):
            found[ours] = round(value, 9)
    tokens = meta.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and tokens:
        found["vocab_size"] = len(tokens)
    return found


def _named(architecture: str) -> str:
    return "Eagle3" if architecture.startswith("eagle3") else architecture


def _tokens_digest(meta: Mapping[str, Any]) -> str:
    tokens = meta.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list):
        return ""
    text = "\n".join(str(token) for token in tokens)
    return "gguf:" + hashlib.sha256(text.encode()).hexdigest()[:16]
