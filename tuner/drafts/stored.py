"""Owns the rules about how a draft is stored: whole files, all shards, precisions, heads.

What an engine refuses is an error; what it loads without a word and lowers acceptance a warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuner.drafts.findings import Finding, Pair

REDUCED = ("F8_E4M3", "F8_E5M2", "I8", "U8", "F4")
"""Element types that mean nothing without scales."""

MAPS = ("d2t", "t2d")


def files_are_whole(pair: Pair) -> Iterator[Finding]:
    """An interrupted download has the full header and half the weights."""
    for name in pair.draft.cut_off:
        yield Finding(
            "files-are-whole",
            "error",
            f"{name} is shorter than its header says: loading fails.",
            "Download it again.",
        )


def shards_are_there(pair: Pair) -> Iterator[Finding]:
    """Every file that the index names."""
    if pair.draft.absent:
        yield Finding(
            "shards-are-there",
            "error",
            f"the index names files that are not there: {', '.join(pair.draft.absent)}.",
            "Download the missing files, or remove a stale model.safetensors.index.json.",
        )


def precision_has_scales(pair: Pair) -> Iterator[Finding]:
    """Quantised numbers without their scales are loaded as if they were the weights."""
    draft = pair.draft
    if draft.setting("quantization_config") or draft.setting("compression_config"):
        return
    names = [
        t.name
        for t in draft.tensors.values()
        if t.dtype in REDUCED and not t.name.endswith(MAPS) and len(t.shape) > 1
    ]
    if names and not any("scale" in name for name in draft.tensors):
        kind = draft.tensors[names[0]].dtype
        yield Finding(
            "precision-has-scales",
            "warning",
            f"{len(names)} weights are stored as {kind} ({names[0]}, …), but there are neither "
            "scales nor a quantization_config: they are taken as they are.",
            "Export the draft in bfloat16, or with its scales and quantization_config.",
        )


def head_is_used(pair: Pair) -> Iterator[Finding]:
    """SGLang takes the target's head where draft_vocab_size is null, and its own otherwise."""
    draft = pair.draft
    head, reduced = draft.tensor("lm_head.weight"), draft.setting("draft_vocab_size")
    declares = "draft_vocab_size" in draft.config
    if "Eagle3" in draft.architecture and declares and reduced is None and head is not None:
        yield Finding(
            "head-is-used",
            "warning",
            "lm_head is stored, but draft_vocab_size is null: SGLang uses the target's head and "
            "leaves this one alone.",
            f"Set draft_vocab_size to {head.shape[0]}, or remove lm_head if it is the target's.",
        )
    full = draft.setting("vocab_size")
    if draft.setting("tie_word_embeddings") and reduced and full and reduced < full:
        yield Finding(
            "head-is-not-tied",
            "warning",
            f"tie_word_embeddings is set, but the head has {reduced:,} rows and the embedding "
            f"{full:,}: a tied head answers in another numbering.",
            "Set tie_word_embeddings to false.",
        )


RULES = (files_are_whole, shards_are_there, precision_has_scales, head_is_used)
