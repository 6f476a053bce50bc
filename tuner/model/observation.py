"""Owns what the model is told: servers as rows of numbers, launches as counts and seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from tuner.model.gaussian import Array

BASELINE = -1
"""The server number of launches without speculation."""

TOKENS, SECONDS, REQUESTS, STEPS, DRAFTED, ACCEPTED = range(6)
"""Columns of an observation's blocks."""


@dataclass(frozen=True, slots=True)
class Designs:
    """Every server that may be launched, one row each.

    Args:
        rows: all parameters, columns spanning about 0 to 1: what time may depend on.
        traits: what acceptance may depend on, in the same way.
        depth: most tokens in a row that one draft holds.
        nodes: tokens that are verified per draft; equals `depth` for a chain.
        branch: alternatives per position; 1 for a chain.
        passes: passes of a draft model per draft; 0 for a lookup.
        silent: servers whose rule is known to draft nothing.
    """

    rows: Array
    traits: Array
    depth: Array
    nodes: Array
    branch: Array
    passes: Array
    silent: Array

    @property
    def count(self) -> int:
        """How many servers."""
        return len(self.depth)


@dataclass(frozen=True, slots=True)
class Observation:
    """One launch.

    Args:
        server: row in the designs, or BASELINE.
        gain: log speed ratio to the baseline by wall clock; NaN unknown.
        blocks: one row per block, columns as above; counters are NaN where not reported.
        per_position: share of drafts that accepted position 1, 2, …; () unknown.
        tells_acceptance, tells_costs: which half may be believed; both, but for launches of an
            earlier study with another draft, other prompts or another host.
    """

    server: int
    gain: float = math.nan
    blocks: Array = field(default_factory=lambda: np.empty((0, 6)))
    per_position: tuple[float, ...] = ()
    tells_acceptance: bool = True
    tells_costs: bool = True

    @property
    def is_counted(self) -> bool:
        """True when tokens, steps and drafts of every block are known."""
        return len(self.blocks) > 0 and bool(np.isfinite(self.blocks).all())

    @property
    def totals(self) -> Array:
        """Sums over blocks."""
        sums: Array = self.blocks.sum(axis=0)
        return sums


def with_baseline_counts(observation: Observation) -> Observation:
    """A baseline launch with its counters: every token is one step and nothing is drafted."""
    blocks = observation.blocks.copy()
    if len(blocks):
        blocks[:, STEPS] = blocks[:, TOKENS]
        blocks[:, [DRAFTED, ACCEPTED]] = 0.0
    return Observation(observation.server, observation.gain, blocks)
