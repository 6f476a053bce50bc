"""Owns the table of public drafts and their authors' claims; every figure keeps its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True, slots=True)
class PublishedDraft:
    """A public draft as its authors describe it; ranges are (low, high)."""

    name: str
    target: str
    method: str
    settings: str
    source: str
    shape: Mapping[str, int] = field(default_factory=dict)
    layer_ids: tuple[int, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    acceptance_length: Mapping[str, float | tuple[float, float]] = field(default_factory=dict)

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest claimed acceptance length; raises ValueError when none is given."""
        bounds = [
            bound
            for claim in self.acceptance_length.values()
            for bound in (claim if isinstance(claim, tuple) else (claim,))
        ]
        return min(bounds), max(bounds)


@cache
def published_drafts() -> tuple[PublishedDraft, ...]:
    """Every draft of the shipped table."""
    entries = yaml.safe_load(TABLE.read_text(encoding="utf-8"))["drafts"]
    return tuple(_draft(entry) for entry in entries)


def _draft(entry: Mapping[str, Any]) -> PublishedDraft:
    claims = {
        name: tuple(claim) if isinstance(claim, list) else float(claim)
        for name, claim in entry["acceptance_length"].items()
    }
    plain = {name: entry[name] for name in ("name", "target", "method", "settings", "source")}
    return PublishedDraft(
        **plain,
        shape=entry.get("shape", {}),
        layer_ids=tuple(entry.get("layer_ids", ())),
        training=entry.get("training", {}),
        acceptance_length=claims,
    )


def find_published(name: str) -> PublishedDraft | None:
    """The draft of exactly this name."""
    return next((draft for draft in published_drafts() if draft.name == name), None)


def family_of(text: str) -> str:
    """A model's family, for "the same or similar": `kimi-k2` of `/models/Kimi-K2.5-INT4`."""
    plain = text.lower().rsplit("/", 1)[-1].replace("_", "-")
    for family in ("kimi-k2", "deepseek-v3", "llama-3", "qwen3", "glm-4", "gpt-oss"):
        if family in plain:
            return family
    return plain


def similar_drafts(target: str, method: str) -> list[PublishedDraft]:
    """Public drafts of the same method for the same family of targets."""
    family = family_of(target)
    return [
        draft
        for draft in published_drafts()
        if draft.method == method and family_of(draft.target) == family
    ]
