"""Owns how the measured acceptance compares with what is published for the same or similar
drafts; every figure keeps its author."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.drafts.published import PublishedDraft, similar_drafts

METHODS = {"eagle3": "EAGLE3", "eagle": "EAGLE", "nextn": "MTP", "mtp": "MTP"}


@dataclass(frozen=True, slots=True)
class Published:
    """Figures of similar public drafts beside the measured length.

    `best` is the draft with the highest claims, `target` the middle of its range.
    """

    drafts: tuple[PublishedDraft, ...]
    best: PublishedDraft
    sentence: str

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest claim of the best draft."""
        return self.best.range

    @property
    def target(self) -> float:
        """The middle of the best draft's claims."""
        return middle(self.best)

    def to_json(self) -> dict[str, Any]:
        """The drafts with their claims and sources, and the sentence."""
        return {
            "drafts": [
                {
                    "name": each.name,
                    "acceptance_length": dict(each.acceptance_length),
                    "settings": each.settings,
                    "source": each.source,
                }
                for each in self.drafts
            ],
            "best": self.best.name,
            "text": self.sentence,
        }


def middle(draft: PublishedDraft) -> float:
    """The mean of a draft's claims; of a range its middle."""
    values = [
        (claim[0] + claim[1]) / 2 if isinstance(claim, tuple) else claim
        for claim in draft.acceptance_length.values()
    ]
    return sum(values) / len(values)


def method_of(flags: Mapping[str, object]) -> str:
    """`EAGLE3` of the flag that names the method, in the words of the published table."""
    for value in flags.values():
        word = re.sub(r"[^a-z0-9]", "", str(value).lower())
        if word.endswith(tuple(METHODS)) and isinstance(value, str) and "/" not in value:
            return METHODS[next(name for name in METHODS if word.endswith(name))]
    return ""


def model_of(flags: Mapping[str, object]) -> str:
    """Name or path of the served model."""
    return next((str(flags[name]) for name in ("model-path", "model") if flags.get(name)), "")


def compare_published(
    flags: Mapping[str, object], length: float, depth: float
) -> Published | None:
    """The comparison; None when no similar draft is published."""
    drafts = [d for d in similar_drafts(model_of(flags), method_of(flags)) if d.acceptance_length]
    if not drafts:
        return None
    best = max(drafts, key=middle)
    lows, highs = zip(*(each.range for each in drafts), strict=True)
    low, high = min(lows), max(highs)
    place = "within" if low <= length <= high else "below" if length < low else "above"
    text = (
        f"Published drafts for this family claim {low:.2f} to {high:.2f} "
        f"(the highest: {best.name} {_claim(best)}; {best.settings}); {length:.2f} at "
        f"{depth:g} drafted positions is {place} that range"
    )
    if length < middle(best):
        text += f" and {1 - length / middle(best):.0%} less than the best"
    return Published(tuple(drafts), best, f"{text}.")


def _claim(draft: PublishedDraft) -> str:
    low, high = draft.range
    return f"{low:.2f}" if low == high else f"{low:.2f}-{high:.2f}"
