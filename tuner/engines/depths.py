"""Owns tables of draft depth by batch size, whatever engine reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tuner.args import ServerArgs


@dataclass(frozen=True, slots=True)
class DepthTable:
    """A server that drafts another depth at another batch size.

    `files` are what its arguments refer to, by name; they lie in the folder that was asked for.
    """

    args: ServerArgs
    files: Mapping[str, str] = field(default_factory=dict)


def halfway(low: int, high: int) -> int:
    """The last batch size that still counts as `low`'s: the geometric mean, within [low, high)."""
    return max(low, min(high - 1, int((low * high) ** 0.5)))


def first_batches(best: Mapping[int, int]) -> dict[int, int]:
    """The depth from each lowest batch size on; equal neighbours are one entry.

    Raises:
        ValueError: nothing was measured, or a batch size or depth is out of range.
    """
    if not best or min(best) < 1 or min(best.values()) < 0:
        raise ValueError(f"depths: batch sizes must be >= 1 and depths >= 0, got {dict(best)}")
    sizes = sorted(best)
    firsts = [1, *(halfway(a, b) + 1 for a, b in pairwise(sizes))]
    found: dict[int, int] = {}
    last = None
    for first, size in zip(firsts, sizes, strict=True):
        if best[size] != last:
            found[first] = last = best[size]
    return found
