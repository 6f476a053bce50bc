"""Owns the rules about draft and target together: widths, context, rope, quantisation, MTP."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.drafts.findings import Finding, Pair
from tuner.drafts.vocabulary import is_standalone

PLAIN = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM")


def architecture_is_a_draft(pair: Pair) -> Iterator[Finding]:
    """Engines take config.json's architecture at its word."""
    name = pair.draft.architecture
    if not name:
        yield Finding(
            "architecture-is-named",
            "error",
            "config.json names no architecture: no engine can load it.",
            'Write "architectures": ["LlamaForCausalLMEagle3"] for an EAGLE-3 draft.',
        )
    elif name in PLAIN and (
        pair.draft.tensor("fc.weight") is not None or "eagle_config" in pair.draft.config
    ):
        yield Finding(
            "architecture-is-a-draft",
            "warning",
            f"the weights are an EAGLE draft's, but the architecture is {name}: it is loaded as "
            "an ordinary language model.",
            "Name the draft's own architecture, such as LlamaForCausalLMEagle3.",
        )


def hidden_sizes_agree(pair: Pair) -> Iterator[Finding]:
    """An EAGLE draft takes the target's hidden states."""
    if pair.target is None or is_standalone(pair):
        return
    declared = pair.draft.setting("target_hidden_size") or pair.draft.setting("hidden_size")
    hidden = pair.target.setting("hidden_size")
    if declared and hidden and declared != hidden:
        yield Finding(
            "hidden-sizes-agree",
            "error",
            f"the draft takes hidden states of {declared:,}, the target gives {hidden:,}.",
            "This draft belongs to another target.",
        )


def context_is_long_enough(pair: Pair) -> Iterator[Finding]:
    """A draft built for a shorter context refuses to start, or guesses beyond its training."""
    draft = pair.draft.setting("max_position_embeddings")
    target = pair.target.setting("max_position_embeddings") if pair.target else None
    if draft and target and draft < target:
        yield Finding(
            "context-reaches-the-target",
            "error",
            f"the draft's context is {draft:,}, the target's {target:,}: SGLang refuses unless "
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1, and positions beyond the draft's "
            "training are then guessed.",
            f"Serve with context-length {draft} or less, or retrain with longer samples.",
        )
    if draft and pair.context_tokens and draft < pair.context_tokens:
        yield Finding(
            "context-reaches-the-workload",
            "warning",
            f"prompts and answers take up to {pair.context_tokens:,} tokens, the draft was built "
            f"for {draft:,}.",
            "Measure with shorter prompts, or use a draft with a longer context.",
        )


def rope_agrees(pair: Pair) -> Iterator[Finding]:
    """Positions and norms that differ from the target lower acceptance without a word."""
    if pair.target is None or is_standalone(pair):
        return
    for name in ("rope_theta", "rope_scaling", "rms_norm_eps"):
        ours, theirs = pair.draft.setting(name), pair.target.setting(name)
        if ours is not None and theirs is not None and ours != theirs:
            yield Finding(
                f"{name}-agrees",
                "info",
                f"{name} differs: draft {ours}, target {theirs}. A draft has its own layer, so "
                "this is right only if it was trained so.",
                "Compare with the training configuration.",
            )


def quantisation_is_meant(pair: Pair) -> Iterator[Finding]:
    """SGLang gives the draft the target's --quantization unless it is told otherwise."""
    flags = pair.server_flags or {}
    inherited = flags.get("quantization")
    own = flags.get("speculative-draft-model-quantization")
    if inherited and not own and "quantization_config" not in pair.draft.config:
        yield Finding(
            "quantisation-is-meant",
            "warning",
            f"the server runs with quantization {inherited} and the draft inherits it, although "
            "its weights are not quantised.",
            "Set speculative-draft-model-quantization: unquant.",
        )


def mtp_layers_exist(pair: Pair) -> Iterator[Finding]:
    """A next-token-prediction head that is declared with 0 layers is none."""
    if "NextN" not in pair.draft.architecture and "num_nextn_predict_layers" not in (
        pair.draft.config
    ):
        return
    layers = pair.draft.setting("num_nextn_predict_layers")
    if not layers:
        yield Finding(
            "mtp-layers-exist",
            "error",
            f"num_nextn_predict_layers is {layers}: there is no next-token head to draft with.",
            "Use a checkpoint that ships its MTP layers, or another method.",
        )


RULES = (
    architecture_is_a_draft,
    hidden_sizes_agree,
    context_is_long_enough,
    rope_agrees,
    quantisation_is_meant,
    mtp_layers_exist,
)
