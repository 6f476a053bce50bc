"""Owns how large a draft is by every convention people count by, with the arithmetic shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.drafts.checkpoint import Checkpoint, Tensor

BUFFERS = ("d2t", "t2d")
"""Vocabulary maps: stored with the weights, never trained."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Parameter counts; `trainable` leaves out the frozen embedding, a shared lm_head and maps.

    `is_estimate`: computed from config.json because no weights could be read.
    """

    total: int
    trainable: int
    embedding: int
    lm_head: int
    without_embeddings: int
    arithmetic: tuple[str, ...]
    is_estimate: bool = False


def count_sizes(draft: Checkpoint) -> Sizes:
    """Count a draft's parameters from its tensor headers, or from config.json without them."""
    return _from_tensors(draft) if draft.tensors else _from_config(draft)


def _is(tensor: Tensor, *parts: str) -> bool:
    return any(part in tensor.name.split(".") for part in parts)


def _from_tensors(draft: Checkpoint) -> Sizes:
    tensors = [t for t in draft.tensors.values() if not _is(t, *BUFFERS)]
    embedding = sum(t.count for t in tensors if _is(t, "embed_tokens", "tok_embeddings"))
    lm_head = sum(t.count for t in tensors if _is(t, "lm_head"))
    total = sum(t.count for t in tensors)
    shared_head = lm_head if _is_shared_head(draft) else 0
    lines = [_product(t) for t in tensors if _is(t, "embed_tokens", "lm_head", "fc")]
    return Sizes(
        total=total,
        trainable=total - embedding - shared_head,
        embedding=embedding,
        lm_head=lm_head,
        without_embeddings=total - embedding - lm_head,
        arithmetic=tuple(lines),
    )


def _is_shared_head(draft: Checkpoint) -> bool:
    """A head as large as the target's vocabulary is the target's own, copied."""
    head, vocabulary = draft.tensor("lm_head.weight"), draft.setting("vocab_size")
    reduced = draft.setting("draft_vocab_size")
    full = reduced is None or reduced == vocabulary
    return head is not None and full and bool(head.shape) and head.shape[0] == vocabulary


def _product(tensor: Tensor) -> str:
    factors = " × ".join(f"{size:,}" for size in tensor.shape)
    return f"{tensor.name}: {factors} = {in_words(tensor.count)}"


def in_words(count: int) -> str:
    """1_174_405_120 as `1.17 B`, 229_376_000 as `229 M`: three significant digits."""
    for scale, word in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        value = float(f"{count / scale:.3g}")
        if value >= 1:
            digits = 2 if value < 10 else 1 if value < 100 else 0
            return f"{value:.{digits}f} {word}"
    return str(count)


def _from_config(draft: Checkpoint) -> Sizes:
    """The usual EAGLE-3 layout: fc, one Llama layer whose attention takes 2 × hidden, head."""
    hidden = int(draft.setting("hidden_size") or 0)
    vocabulary = int(draft.setting("vocab_size") or 0)
    head_rows = int(draft.setting("draft_vocab_size") or vocabulary)
    embedding, lm_head = vocabulary * hidden, head_rows * hidden
    body = sum(count for _, count in _body(draft))
    lines = [
        f"embedding: {vocabulary:,} × {hidden:,} = {in_words(embedding)}",
        f"lm_head: {head_rows:,} × {hidden:,} = {in_words(lm_head)}",
        *(f"{name} = {in_words(count)}" for name, count in _body(draft)),
    ]
    shared = lm_head if head_rows == vocabulary else 0
    return Sizes(
        total=embedding + lm_head + body,
        trainable=lm_head - shared + body,
        embedding=embedding,
        lm_head=lm_head,
        without_embeddings=body,
        arithmetic=tuple(lines),
        is_estimate=True,
    )


def _body(draft: Checkpoint) -> Sequence[tuple[str, int]]:
    hidden = int(draft.setting("hidden_size") or 0)
    heads = int(draft.setting("num_attention_heads") or 1)
    kv_heads = int(draft.setting("num_key_value_heads") or heads)
    head = int(draft.setting("head_dim") or (hidden // heads if heads else 0))
    inner = int(draft.setting("intermediate_size") or 0)
    layers = int(draft.setting("num_hidden_layers") or 1)
    states = int(draft.setting("num_aux_hidden_states") or len(declared_ids(draft)) or 3)
    source = int(draft.setting("target_hidden_size") or hidden)
    attention = 2 * hidden * head * (heads + 2 * kv_heads) + heads * head * hidden
    return (
        (f"fc: {states} × {source:,} × {hidden:,}", states * source * hidden),
        (f"attention, {layers} layer(s) on 2 × hidden", layers * attention),
        (f"MLP: 3 × {hidden:,} × {inner:,}, {layers} layer(s)", layers * 3 * hidden * inner),
    )


def declared_ids(draft: Checkpoint) -> list[int]:
    """The captured layer ids as the checkpoint declares them, wherever it does; [] for none."""
    eagle = draft.config.get("eagle_config")
    nested = eagle.get("eagle_aux_hidden_state_layer_ids") if isinstance(eagle, dict) else None
    for ids in (nested, draft.config.get("eagle_aux_hidden_state_layer_ids")):
        if isinstance(ids, list) and all(type(each) is int for each in ids):
            return list(ids)
    return []
