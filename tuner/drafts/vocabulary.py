"""Owns the rules about vocabularies: reduced draft vocabularies, their maps, tokenizers.

`d2t` holds differences: target id = draft id + d2t[draft id] (SGLang 0.5.23,
models/llama_eagle3.py L350-353).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tuner.drafts.checkpoint import read_values
from tuner.drafts.findings import Finding, Pair

LARGE_MAP = 64
"""Draft tokens from which on no map of differences grows at every single one of them."""

GGUF_SPARE = 128
"""llama.cpp takes vocabularies that differ by so many tokens at the end (padding)."""


def draft_vocabulary_is_declared(pair: Pair) -> Iterator[Finding]:
    """SGLang's EAGLE-3 draft needs the attribute; null means the target's own head."""
    if "LlamaForCausalLMEagle3" in pair.draft.architecture and (
        "draft_vocab_size" not in pair.draft.config
    ):
        yield Finding(
            "draft_vocab_size-is-declared",
            "error",
            "config.json has no draft_vocab_size: SGLang fails with AttributeError.",
            "Set draft_vocab_size to the rows of lm_head, or to null to use the target's head.",
        )


def reduced_vocabulary_has_a_map(pair: Pair) -> Iterator[Finding]:
    """Without a map the draft's ids are taken for the target's."""
    draft, full = pair.draft.setting("draft_vocab_size"), pair.draft.setting("vocab_size")
    if not draft or not full or draft >= full or not pair.draft.tensors:
        return
    if pair.draft.tensor("d2t") is None:
        yield Finding(
            "reduced-vocabulary-has-a-map",
            "warning",
            f"the draft's vocabulary has {draft:,} of {full:,} tokens, but no d2t map is stored: "
            "draft ids are taken for target ids and almost nothing is accepted.",
            "Export d2t with the weights.",
        )


def map_is_right(pair: Pair) -> Iterator[Finding]:
    """An all-zero map, absolute ids instead of differences, ids outside the vocabulary."""
    tensor = pair.draft.tensor("d2t")
    values = read_values(tensor) if tensor is not None else None
    if tensor is None or values is None or values.size < 2:
        return
    flat = values.astype(np.int64).ravel()
    full = int(pair.draft.setting("vocab_size") or 0)
    ids = flat + np.arange(flat.size)
    if not flat.any() and full > flat.size:
        yield Finding(
            "map-is-not-zero",
            "warning",
            f"d2t is all zero: the {flat.size:,} draft tokens stand for the first "
            f"{flat.size:,} target tokens, which no training picks.",
            "Export the map that was made when the draft's vocabulary was chosen.",
        )
    elif full and (ids.max() >= full or ids.min() < 0) and _looks_absolute(flat, full):
        yield Finding(
            "map-holds-differences",
            "warning",
            "d2t holds target ids, but engines add it to the draft's id: nearly every draft "
            "token becomes another one.",
            "Store target_id - draft_id.",
        )
    elif full and (ids.max() >= full or ids.min() < 0):
        yield Finding(
            "map-is-inside-the-vocabulary",
            "error",
            f"d2t leads to ids from {ids.min():,} to {ids.max():,} in a vocabulary of {full:,}.",
            "The map belongs to another target.",
        )
    elif flat.size >= LARGE_MAP and _looks_absolute(flat, full):
        yield Finding(
            "map-holds-differences",
            "warning",
            "d2t looks like target ids (ascending, all different) where differences belong.",
            "Store target_id - draft_id.",
        )
    elif (repeated := ids.size - np.unique(ids).size) > 0:
        yield Finding(
            "map-is-one-to-one",
            "warning",
            f"{repeated:,} of {ids.size:,} draft tokens lead to the same target token as another: "
            "what they stand for is never proposed.",
            "Export d2t again from the chosen target ids, each once.",
        )


def map_fits_the_head(pair: Pair) -> Iterator[Finding]:
    """One entry per draft token; and a mask `t2d` marks the very tokens that `d2t` leads to."""
    tensor, draft = pair.draft.tensor("d2t"), pair.draft.setting("draft_vocab_size")
    if tensor is None or not draft:
        return
    if tensor.count != draft:
        yield Finding(
            "map-fits-the-head",
            "error",
            f"d2t has {tensor.count:,} entries, draft_vocab_size says {draft:,}.",
            "Export d2t and lm_head from the same training.",
        )
        return
    mask = pair.draft.tensor("t2d")
    values, marked = read_values(tensor), read_values(mask) if mask is not None else None
    if values is None or marked is None or marked.dtype.itemsize != 1:
        return
    ids = np.sort(values.astype(np.int64).ravel() + np.arange(values.size))
    if not np.array_equal(np.flatnonzero(marked.ravel()), ids):
        yield Finding(
            "maps-agree",
            "warning",
            "t2d marks other target tokens than d2t leads to: one of them is of another training.",
            "Export both maps together.",
        )


def _looks_absolute(flat: npt.NDArray[np.int64], full: int) -> bool:
    """Target ids are strictly ascending and inside the vocabulary; differences never fall but
    repeat, because most neighbours in the draft are neighbours in the target."""
    ascending = bool((np.diff(flat) > 0).all())
    return ascending and flat.min() >= 0 and (not full or flat.max() < full)


def head_fits_the_vocabulary(pair: Pair) -> Iterator[Finding]:
    """lm_head has one row per draft token."""
    head, draft = pair.draft.tensor("lm_head.weight"), pair.draft.setting("draft_vocab_size")
    if head is not None and draft and head.shape[0] != draft:
        yield Finding(
            "head-fits-the-vocabulary",
            "error",
            f"lm_head has {head.shape[0]:,} rows, draft_vocab_size says {draft:,}: loading fails.",
            "Correct draft_vocab_size.",
        )


def vocabularies_agree(pair: Pair) -> Iterator[Finding]:
    """Draft and target must speak of the same tokens; engines never check for EAGLE drafts."""
    target = pair.target
    if target is None:
        return
    ours, theirs = pair.draft.setting("vocab_size"), target.setting("vocab_size")
    spare = GGUF_SPARE if target.architecture.endswith("(GGUF)") else 0
    if ours and theirs and abs(ours - theirs) > spare:
        yield Finding(
            "vocabularies-agree",
            "error" if is_standalone(pair) else "warning",
            f"vocab_size differs: draft {ours:,}, target {theirs:,}.",
            "Use a draft that was trained for this target.",
        )
    if _tell_different_words(pair.draft.tokenizer, target.tokenizer):
        yield Finding(
            "tokenizers-agree",
            "error" if is_standalone(pair) else "warning",
            "the tokenizers' vocabularies differ: the draft proposes other words than it means.",
            "Use a draft with the target's tokenizer.",
        )


def _tell_different_words(ours: str, theirs: str) -> bool:
    """Two digests of the same kind that differ; a GGUF file's is of another kind."""
    is_same_kind = ours.startswith("gguf:") == theirs.startswith("gguf:")
    return bool(ours and theirs) and is_same_kind and ours != theirs


def is_standalone(pair: Pair) -> bool:
    """True for an ordinary language model used as a draft (STANDALONE, draft_model)."""
    name = pair.draft.architecture
    special = ("Eagle", "NextN", "MTP", "Medusa", "DFlash", "DSpark")
    is_model = name.endswith(("ForCausalLM", "(GGUF)"))
    return is_model and not any(part in name for part in special)


RULES = (
    draft_vocabulary_is_declared,
    reduced_vocabulary_has_a_map,
    map_is_right,
    map_fits_the_head,
    head_fits_the_vocabulary,
    vocabularies_agree,
)
