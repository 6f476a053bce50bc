"""Owns one inspection: a draft's sizes, layer ids and every finding, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.drafts import pairing, stored, vocabulary, wiring
from tuner.drafts.checkpoint import Checkpoint
from tuner.drafts.findings import Finding, Pair, by_severity
from tuner.drafts.layer_ids import Capture, sglang_captures
from tuner.drafts.opening import read_checkpoint
from tuner.drafts.sizes import Sizes, count_sizes, declared_ids
from tuner.drafts.vocabulary import is_standalone
from tuner.drafts.wiring import Rule

SHAPE = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "num_hidden_layers", "vocab_size", "draft_vocab_size", "max_position_embeddings",
    "target_hidden_size",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a draft is, and what is wrong with it; findings worst first."""

    draft: Checkpoint
    method: str
    sizes: Sizes
    layer_ids: tuple[int, ...]
    capture: Capture | None
    findings: tuple[Finding, ...]

    @property
    def shape(self) -> dict[str, Any]:
        """The settings that make its shape, where they are set."""
        found = {name: self.draft.setting(name) for name in SHAPE}
        return {name: value for name, value in found.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """The document `tuner draft inspect --json` prints."""
        sizes = self.sizes
        return {
            "folder": str(self.draft.folder),
            "method": self.method,
            "architecture": self.draft.architecture,
            "shape": self.shape,
            "parameters": {
                "total": sizes.total,
                "trainable": sizes.trainable,
                "embedding": sizes.embedding,
                "lm_head": sizes.lm_head,
                "without_embeddings": sizes.without_embeddings,
                "is_estimate": sizes.is_estimate,
                "arithmetic": list(sizes.arithmetic),
            },
            "layer_ids": list(self.layer_ids),
            "captured_outputs": list(self.capture.outputs) if self.capture else None,
            "capture_rule": self.capture.rule if self.capture else "",
            "training": dict(self.draft.training),
            "findings": [finding.to_json() for finding in self.findings],
        }


def method_of(draft: Checkpoint) -> str:
    """The speculative method a checkpoint is made for, by its architecture."""
    name = draft.architecture
    for part, method in (
        ("Eagle3", "EAGLE3"), ("Eagle", "EAGLE"), ("NextN", "NEXTN"), ("MTP", "NEXTN"),
        ("DFlash", "DFLASH"), ("DSpark", "DSPARK"), ("Medusa", "MEDUSA"),
    ):  # fmt: skip
        if part in name:
            return method
    return "STANDALONE" if is_standalone(Pair(draft)) else "unknown"


def inspect_pair(pair: Pair) -> Inspection:
    """Every rule that concerns this kind of draft, over a draft and its target."""
    method = method_of(pair.draft)
    rules: list[Rule] = [*stored.RULES, *pairing.RULES]
    is_gguf = pair.draft.architecture.endswith("(GGUF)")  # its tensors have other names
    is_eagle = method in ("EAGLE3", "EAGLE") or "eagle_config" in pair.draft.config
    if is_eagle and not is_gguf:
        rules = [*wiring.RULES, *vocabulary.RULES, *rules]
    else:
        rules = [vocabulary.vocabularies_agree, *rules]
    findings = [finding for rule in rules for finding in rule(pair)]
    return Inspection(
        draft=pair.draft,
        method=method,
        sizes=count_sizes(pair.draft),
        layer_ids=tuple(declared_ids(pair.draft)),
        capture=sglang_captures(pair.draft, pair.target_architecture, pair.target_layers),
        findings=tuple(by_severity(findings)),
    )


def inspect_draft(
    draft: str,
    target: str | None = None,
    *,
    context_tokens: int | None = None,
    server_flags: Mapping[str, object] | None = None,
) -> Inspection:
    """Read a draft (and its target) and inspect it; raises UsageError for unreadable folders."""
    return inspect_pair(
        Pair(
            draft=read_checkpoint(draft),
            target=read_checkpoint(target) if target else None,
            context_tokens=context_tokens,
            server_flags=server_flags,
        )
    )
