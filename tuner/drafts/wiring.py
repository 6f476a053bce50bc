"""Owns the rules that find a mis-wired EAGLE-3 draft before a GPU is touched.

Each rule takes a `Pair` and yields findings. What fails loud at launch is an error; what lowers
acceptance without a word is a warning. Source of the rules: SGLang 0.5.23 models/llama_eagle3.py
and spec_aux_hidden_state.py, as far as not said otherwise at the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tuner.drafts.findings import Finding, Pair
from tuner.drafts.layer_ids import (
    EMBEDDING,
    default_ids,
    sglang_captures,
    sglang_reads,
    takes_input_ids,
)
from tuner.drafts.sizes import declared_ids

NEEDED = ("fc.weight", "norm.weight")
LAYER_PARTS = (
    "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
    "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight",
    "mlp.down_proj.weight", "hidden_norm.weight", "input_layernorm.weight",
    "post_attention_layernorm.weight",
)  # fmt: skip

Rule = Callable[[Pair], Iterator[Finding]]


def ids_are_read(pair: Pair) -> Iterator[Finding]:
    """Ids outside a dict `eagle_config` are ignored by SGLang."""
    eagle = pair.draft.config.get("eagle_config")
    if eagle is not None and not isinstance(eagle, dict):
        yield Finding(
            "eagle_config-is-a-mapping",
            "warning",
            f"eagle_config must be a mapping, got {type(eagle).__name__}: SGLang falls back to "
            "its default layers.",
            'Write "eagle_config": {"eagle_aux_hidden_state_layer_ids": [...]}.',
        )
    elif declared_ids(pair.draft) and sglang_reads(pair.draft) is None:
        yield Finding(
            "ids-in-eagle_config",
            "warning",
            f"the layer ids {declared_ids(pair.draft)} stand at the top level of config.json: "
            "SGLang reads only eagle_config and captures its default layers.",
            "Move eagle_aux_hidden_state_layer_ids into eagle_config.",
        )


def ids_are_sorted(pair: Pair) -> Iterator[Finding]:
    """Layers are captured in ascending order, each once, whatever the list says."""
    ids = declared_ids(pair.draft)
    if len(set(ids)) != len(ids):
        yield Finding(
            "ids-are-distinct",
            "warning",
            f"the layer ids {ids} repeat a layer: it is captured once, the fc layer gets too few.",
            "Give each layer once.",
        )
    if ids != sorted(ids):
        yield Finding(
            "ids-are-ascending",
            "warning",
            f"the layer ids {ids} are not ascending: they are captured as {sorted(set(ids))}, "
            "so the fc layer sees them in another order than it was trained on.",
            "Sort the ids, and retrain or permute the columns of fc if it was trained unsorted.",
        )


def embedding_is_not_captured(pair: Pair) -> Iterator[Finding]:
    """The founding fault: the embedding's output captured beside the hidden states."""
    capture = sglang_captures(pair.draft, pair.target_architecture, pair.target_layers)
    if capture and capture.has_embedding:
        position = capture.outputs.index(EMBEDDING)
        rest = [each for i, each in enumerate(capture.ids) if i != position]
        yield Finding(
            "embedding-is-not-captured",
            "warning",
            f"id {capture.ids[position]} captures the embedding's output, which holds nothing "
            f"the draft's own embedding does not: with {list(capture.ids)} acceptance has been "
            f"seen to fall from 47 % to 19 %.",
            f"Capture {rest} alone; retrain fc for {len(rest)} states if it has "
            f"{len(capture.ids)}.",
        )


def ids_are_not_shifted(pair: Pair) -> Iterator[Finding]:
    """Every layer one off the usual ones: ids written down in the other convention."""
    layers = pair.target_layers
    capture = sglang_captures(pair.draft, pair.target_architecture, layers)
    if capture is None or layers is None or sglang_reads(pair.draft) is None:
        return
    usual = [each - 1 for each in default_ids(layers)]
    apart = {ours - theirs for ours, theirs in zip(capture.outputs, usual, strict=False)}
    if len(capture.outputs) == len(usual) and apart in ({1}, {-1}):
        way = "after" if apart == {1} else "before"
        yield Finding(
            "ids-are-not-shifted",
            "warning",
            f"the ids {list(capture.ids)} capture the outputs of layers {list(capture.outputs)}, "
            f"each one layer {way} those that trainers capture by default ({usual}): "
            "SGLang reads ids as outputs on most targets, as inputs on DeepSeek and Kimi.",
            f"If it was trained on the outputs {usual}, {_shift_hint(pair, usual)}.",
        )


def _shift_hint(pair: Pair, usual: list[int]) -> str:
    ids = [each + 1 for each in usual] if takes_input_ids(pair.target_architecture) else usual
    return f"write {ids}"


def ids_fit_the_target(pair: Pair) -> Iterator[Finding]:
    """An id beyond the last layer is never captured."""
    capture = sglang_captures(pair.draft, pair.target_architecture, pair.target_layers)
    layers = pair.target_layers
    if capture is None or layers is None:
        return
    # SGLang captures at the *input* of layer output + 1: the last layer's output never comes.
    beyond = [i for i, out in zip(capture.ids, capture.outputs, strict=True) if out >= layers - 1]
    if beyond:
        yield Finding(
            "ids-are-inside-the-target",
            "error",
            f"the ids {beyond} are never captured in a target of {layers} layers: fc gets too "
            "few states and fails at the first forward pass.",
            f"Use ids below {layers - 1}.",
        )


def states_fit_fc(pair: Pair) -> Iterator[Finding]:
    """fc takes (number of states) × (target's hidden size) columns."""
    fc, hidden = pair.draft.tensor("fc.weight"), pair.target_hidden
    capture = sglang_captures(pair.draft, pair.target_architecture, pair.target_layers)
    if fc is None or hidden is None or len(fc.shape) != 2:
        return
    states, rest = divmod(fc.shape[1], hidden)
    count = len(set(capture.ids)) if capture else 3
    if rest:
        yield Finding(
            "fc-fits-hidden-size",
            "error",
            f"fc takes {fc.shape[1]:,} columns, no multiple of the target's hidden size "
            f"{hidden:,}.",
            "This draft belongs to another target.",
        )
    elif states != count:
        ids = list(capture.ids) if capture else "the default three layers"
        yield Finding(
            "fc-fits-the-ids",
            "error",
            f"fc was trained on {states} hidden states ({states} × {hidden:,} columns), but "
            f"{count} are captured ({ids}).",
            "Give the ids the draft was trained with.",
        )


def weights_are_complete(pair: Pair) -> Iterator[Finding]:
    """Missing tensors stay random: loading ignores unknown names and never checks for these."""
    draft = pair.draft
    if not draft.tensors:
        kind = "only files whose headers are not read" if draft.unread else "none"
        yield Finding(
            "weights-are-there",
            "info",
            f"no tensor headers to check, found {kind}{_listed(draft.unread)}.",
            "Convert the checkpoint to safetensors to have its weights checked.",
        )
        return
    layers = {"midlayer": "midlayer", "layers.0": "layers.0"}
    first = next((p for p in layers if draft.tensor(f"{p}.{LAYER_PARTS[0]}")), "midlayer")
    missing = [name for name in NEEDED if draft.tensor(name) is None]
    missing += [
        f"{first}.{part}" for part in LAYER_PARTS if draft.tensor(f"{first}.{part}") is None
    ]
    if draft.setting("draft_vocab_size") is not None and draft.tensor("lm_head.weight") is None:
        missing.append("lm_head.weight")
    if missing:
        yield Finding(
            "weights-are-complete",
            "warning",
            f"missing from the checkpoint: {', '.join(missing)}. Loading does not notice; they "
            "stay random.",
            "Export the draft again with every tensor; compare the names with a working draft.",
        )


def _listed(names: tuple[str, ...]) -> str:
    return f" ({', '.join(names)})" if names else ""


def flags_fit_weights(pair: Pair) -> Iterator[Finding]:
    """Options in config.json without their tensors, and tensors without their option."""
    eagle = pair.draft.config.get("eagle_config")
    options = {**pair.draft.config, **(eagle if isinstance(eagle, dict) else {})}
    checks = (
        ("norm_before_fc", ("input_norm.weight",)),
        ("fc_norm", ("fc_norm.0.weight", "aux_norm_low.weight")),
        ("use_aux_norm", ("fc_norm.0.weight", "aux_norm_low.weight")),
        ("bias", ("fc.bias",)),
    )
    norms_wanted = any(options.get(name) for name in ("fc_norm", "use_aux_norm"))
    for name, tensors in checks if pair.draft.tensors else ():
        stored = pair.draft.tensor(*tensors) is not None
        wanted = norms_wanted if name in ("fc_norm", "use_aux_norm") else bool(options.get(name))
        if wanted and not stored and options.get(name):
            yield Finding(
                "options-have-weights",
                "warning",
                f"config.json sets {name}, but {tensors[0]} is not stored: it stays at ones or "
                "random.",
                f"Remove {name}, or export its weights.",
            )
        elif stored and not wanted and name != "use_aux_norm":
            yield Finding(
                "weights-have-options",
                "warning",
                f"{tensors[0]} is stored, but config.json does not set {name}: it is not used.",
                f"Set {name} as in training.",
            )


RULES: tuple[Rule, ...] = (
    ids_are_read,
    ids_are_sorted,
    embedding_is_not_captured,
    ids_are_not_shifted,
    ids_fit_the_target,
    states_fit_fc,
    weights_are_complete,
    flags_fit_weights,
)
