"""Owns what each lever would give: a ratio to the explained server, its interval and its basis.

Speed is tokens per step over seconds per step; every what-if changes one of the two. Only the
decoding share of a request moves: prefill stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tuner import units
from tuner.insight.clock import DRAWS, draws_of, row
from tuner.insight.counts import Steps
from tuner.insight.curve import Curve, quantiles
from tuner.insight.cycle import Cycle
from tuner.insight.published import Published
from tuner.model.clock import Clock
from tuner.model.gaussian import Array

Basis = Literal["measured", "model", "simulated"]

DEEPEST = 16
"""No engine drafts usefully deeper."""

WIDER_LIFT, WIDER_SD = 0.5, 0.35
"""Gain in logits of acceptance per doubling of alternatives, as trees in the literature show."""

LEAST_S = 1e-12
"""Seconds of a step by a plausible clock, at least: a drawn one may say nothing."""

NCCL_SHARE = 0.1
"""How much faster verification is assumed to become where nothing about NCCL was measured."""

SMALL_VOCABULARY = 32_000


@dataclass(frozen=True, slots=True)
class Lever:
    """One change: what it would give as a ratio to the explained server, and how that is known.

    `length` is the acceptance length it would bring, where it brings one; `simulated` the ratio
    with its interval when that was run on the real server with synthetic acceptance.
    """

    name: str
    change: str
    ratio: float
    low: float
    high: float
    basis: Basis
    next_step: str = ""
    length: float | None = None
    simulated: tuple[float, float, float] | None = None

    def to_json(self, vs_baseline: float | None) -> dict[str, Any]:
        """The lever, also as a ratio to the baseline."""
        return {
            "name": self.name,
            "change": self.change,
            "predicted_ratio": self.ratio,
            "low": self.low,
            "high": self.high,
            "basis": self.basis,
            "predicted_vs_baseline": vs_baseline and vs_baseline * self.ratio,
            "simulated": self.simulated
            and dict(zip(("ratio", "low", "high"), self.simulated, strict=True)),
            "next": self.next_step,
        }


@dataclass(frozen=True, slots=True)
class Ground:
    """What levers are computed from; `measured_depths` are those the study has tried.

    `width` is 0 where the engine's drafts are chains only.
    """

    steps: Steps
    curve: Curve
    cycle: Cycle
    clock: Clock | None
    depth: int
    width: int
    measured_depths: frozenset[int]
    published: Published | None = None
    head_share: float | None = None
    vocabulary: int = 0
    ranks: int = 1
    verify_saving: float | None = None

    def whole(self, decode: Array | float) -> Array:
        """Ratios of a whole request from ratios of its decoding."""
        share = self.steps.decode_share
        found: Array = 1.0 / (1.0 - share + share / np.asarray(decode, dtype=float))
        return found

    def length(self, drafted: Array | float) -> Array:
        """Tokens per step when a draft has so many; steps without a draft stay."""
        share = self.steps.drafting
        found: Array = 1 - share + share * np.asarray(drafted, dtype=float)
        return found


def break_even(ground: Ground, versus: float) -> float | None:
    """The acceptance length from which the explained server would equal the baseline.

    Args:
        ground: of the explained server.
        versus: its ratio to the baseline.

    Returns:
        None where no acceptance could: more time than that is spent outside decoding.
    """
    share, now = ground.steps.decode_share, ground.curve.length
    left = versus - 1 + share
    if left <= 0 or not ground.steps.drafting:
        return None
    tokens = float(ground.length(now)) * share / left
    return (tokens - 1) / ground.steps.drafting + 1


def find_levers(ground: Ground) -> list[Lever]:
    """Every lever that this study can say something about, largest first."""
    makers: Sequence[Callable[[Ground], Iterator[Lever]]] = (
        _depth, _width, _better_draft, _vocabulary, _communication,
    )  # fmt: skip
    found = [lever for make in makers for lever in make(ground)]
    return sorted(found, key=lambda lever: -lever.ratio)


# ---- shape of the draft ----------------------------------------------------------------------
def _depth(ground: Ground) -> Iterator[Lever]:
    """The best depth that was not measured, on either side of the present one."""
    if ground.clock is None or ground.width > 1 or not ground.steps.drafting:
        return
    tried = ground.measured_depths | {ground.depth}
    depths = [d for d in range(1, DEEPEST + 1) if d not in tried]
    for name, side in (
        ("deeper draft", [d for d in depths if d > ground.depth]),
        ("shallower draft", [d for d in depths if d < ground.depth]),
    ):
        if side:
            best = max(side, key=lambda d: float(np.median(_at_depth(ground, d))))
            change = f"{ground.depth} to {best} drafted positions"
            step = f"add depth {best} to space.start and run the study again"
            yield _lever(name, change, _at_depth(ground, best), step)


def _at_depth(ground: Ground, depth: int) -> Array:
    now = ground.length(ground.curve.lengths(ground.depth, DRAWS))
    then = ground.length(ground.curve.lengths(depth, DRAWS))
    passes = depth if ground.steps.passes else 0
    return ground.whole(then / now / _slowdown(ground, float(depth), float(passes)))


def _slowdown(ground: Ground, verified: float, passes: float) -> Array:
    """How much longer a step becomes, by plausible clocks, anchored at the measured step."""
    assert ground.clock is not None
    steps, draws = ground.steps, draws_of(ground.clock)
    after = draws @ row(verified, passes, steps.drafting)
    before = draws @ row(steps.verified, steps.passes, steps.drafting)
    found: Array = np.maximum(after, LEAST_S) / np.maximum(before, LEAST_S)
    return found


def _width(ground: Ground) -> Iterator[Lever]:
    """Twice as many alternatives per position; only where the engine has trees and the draft is
    a model."""
    if ground.clock is None or not ground.steps.passes or ground.depth < 2 or not ground.width:
        return
    lifts = np.random.default_rng(3).normal(WIDER_LIFT, WIDER_SD, size=9)
    now = ground.length(ground.curve.mean_length(ground.depth))
    gains = [ground.length(ground.curve.mean_length(ground.depth, lift)) / now for lift in lifts]
    slow = _slowdown(ground, 2 * ground.steps.verified + 1, ground.steps.passes)
    ratios = np.concatenate([ground.whole(gain / slow) for gain in gains])
    width = 2 * ground.width
    step = f"add topk {width} to the space and run the study again"
    yield _lever("wider draft", f"topk {ground.width} to {width}", ratios, step)


# ---- the draft itself ------------------------------------------------------------------------
def _better_draft(ground: Ground) -> Iterator[Lever]:
    """The acceptance length of the best similar public draft, or half of what is missing."""
    now, most = ground.curve.length, ground.depth + 1.0
    if not ground.steps.passes or now <= 0:
        return
    if ground.published is not None:
        best = ground.published.best.name
        low, high = (min(value, most) for value in ground.published.range)
        target, source = min(ground.published.target, most), f", as {best} claims"
        step = f"`tuner draft inspect` your draft, then `tuner draft compare` it with {best}"
    else:
        target, source = now + (most - now) / 2, ", half of what is missing to a perfect draft"
        low, high = now + (most - now) / 4, now + (most - now) * 3 / 4
        step = "`tuner draft inspect` your draft; more and closer training data raise acceptance"
    if target <= now:
        return
    lengths = np.linspace(min(low, target), max(high, target), DRAWS)
    ratios = ground.whole(ground.length(lengths) / ground.length(now))
    middle = float(ground.whole(ground.length(target) / ground.length(now)))
    bounds = quantiles(ratios)
    change = f"acceptance length {now:.2f} to {target:.2f}{source}"
    yield Lever("better draft", change, middle, *bounds, "model", step, target)


def _vocabulary(ground: Ground) -> Iterator[Lever]:
    """A draft head for the most frequent tokens only: its share of a pass shrinks."""
    if ground.head_share is None or ground.vocabulary < 1.5 * SMALL_VOCABULARY:
        return
    saved = ground.head_share * (1 - SMALL_VOCABULARY / ground.vocabulary)
    share = ground.cycle.shares["draft"]
    ratios = ground.whole(1 / (1 - share * saved * np.linspace(0.5, 1.0, DRAWS)))
    change = (
        f"draft vocabulary {ground.vocabulary:,} to {SMALL_VOCABULARY:,}; what it costs in "
        "acceptance is not known"
    )
    step = "train the draft with a vocabulary map, or take one that has it"
    yield _lever("smaller draft vocabulary", change, ratios, step)


# ---- the rest --------------------------------------------------------------------------------
def _communication(ground: Ground) -> Iterator[Lever]:
    """Verification with less waiting for all-reduces; by what NCCL settings saved elsewhere."""
    share = ground.cycle.shares["verify"]
    if ground.verify_saving is not None:
        saving = ground.verify_saving
        change = f"the NCCL settings that saved {units.percent(saving)} of a step elsewhere"
        step = "add this combination to space.start and run the study again"
    elif ground.ranks > 1:
        saving = NCCL_SHARE
        change = f"verification {units.percent(saving)} faster by faster all-reduces (assumed)"
        step = "`tuner probe collectives`, then include an nccl space in the study"
    else:
        return
    ratios = ground.whole(1 / (1 - share * np.linspace(0.5 * saving, 1.5 * saving, DRAWS)))
    yield _lever("communication", change, ratios, step)


def _lever(name: str, change: str, ratios: Array, next_step: str) -> Lever:
    low, high = quantiles(ratios)
    return Lever(name, change, float(np.median(ratios)), low, high, "model", next_step)
