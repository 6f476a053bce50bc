"""Owns a trial in counts: tokens per step, drafted tokens, draft passes, seconds per step.

Read from a stored record alone; knows no engine beyond the names of the flags that say how deep
and how wide a draft is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.store.record import AcceptanceRecord, LoadPointRecord, TrialRecord

DEPTH = (
    "num-steps",
    "n-max",
    "size-m",
    "num_speculative_tokens",
    "num-speculative-tokens",
    "spec-steps",
)
"""Endings of the flags that say how far a draft runs ahead."""

WIDTH = ("topk",)
"""Endings of the flags that say how many alternatives a position has."""

LOOKUPS = ("ngram", "lookup", "suffix")
"""Drafts that cost no pass of a model; part of the value of a method flag."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What one server did at one load point, per decoding step of a request.

    Args:
        trial: its number.
        length: tokens per step, every step counted.
        drafting: share of steps that verified a draft; 0 without speculation.
        verified: drafted tokens that were verified per draft.
        passes: passes of a draft model per draft; 0 for a lookup.
        seconds: wall seconds per step; NaN unknown.
        decode_share: share of a request's time that is spent in steps.
        count: how many steps were counted.
    """

    trial: int
    length: float
    drafting: float
    verified: float
    passes: float
    seconds: float
    decode_share: float = 1.0
    count: float = 0.0


def flag_number(trial: TrialRecord, endings: Sequence[str]) -> float | None:
    """The number of the first requested flag with one of these endings; None without one."""
    for name, value in trial.requested_args.flags.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and name.endswith(tuple(endings)):
            return float(value)
    return None


def is_lookup(trial: TrialRecord) -> bool:
    """True when drafts are copied from text instead of computed by a model."""
    words = [str(value).lower() for value in trial.requested_args.flags.values()]
    return any(word.startswith(LOOKUPS) for word in words)


def point_at(trial: TrialRecord, load: str) -> LoadPointRecord | None:
    """The trial's load point; its first one when no load is named."""
    return trial.at(load)


def count_steps(trial: TrialRecord, load: str) -> Steps | None:
    """The trial in counts; None when too little was reported.

    Every answer's first token comes from its prefill; every step after it gives one token and
    those it accepted: steps = tokens - requests - accepted.
    """
    point = point_at(trial, load)
    if point is None:
        return None
    answers = point.requests - point.errors
    tokens = _tokens(point, answers) - answers
    if answers <= 0 or not tokens > 0:
        return None
    share = _decode_share(point)
    token_s = _token_seconds(point, answers, tokens)
    acceptance = point.acceptance or (trial.acceptance if _is_first(trial, point) else None)
    if acceptance is None:
        if trial.state != "baseline":
            return None
        return Steps(trial.number, 1.0, 0.0, 0.0, 0.0, token_s, share, tokens)
    steps = max(tokens - acceptance.accepted, tokens / 64)
    drafting, verified = _drafts(trial, acceptance, steps)
    return Steps(
        trial=trial.number,
        length=tokens / steps,
        drafting=drafting,
        verified=verified,
        passes=_passes(trial, verified),
        seconds=token_s * tokens / steps,
        decode_share=share,
        count=steps,
    )


def answer_tokens(trial: TrialRecord, load: str) -> float | None:
    """Tokens of a usual answer at a load point; None when they were not reported."""
    point = point_at(trial, load)
    if point is None or point.requests <= point.errors:
        return None
    tokens = _tokens(point, 1)
    return tokens if math.isfinite(tokens) else None


def assumed_steps(trial: TrialRecord, seconds: float) -> Steps | None:
    """Steps of a trial that reported its acceptance length but no counts: a draft at each step,
    decoding all the time."""
    if trial.acceptance_length is None:
        return None
    depth = flag_number(trial, DEPTH) or float(len(trial.acceptance_per_position)) or 1.0
    passes = _passes(trial, depth)
    return Steps(trial.number, trial.acceptance_length, 1.0, depth, passes, seconds)


def _tokens(point: LoadPointRecord, answers: int) -> float:
    """Generated tokens of the whole load point."""
    speed, rate = (
        point.metrics.get(n, math.nan) for n in ("output_tokens_per_s", "requests_per_s")
    )
    return speed / rate * answers if rate and rate > 0 else math.nan


def _decode_share(point: LoadPointRecord) -> float:
    whole, first = (point.metrics.get(name, math.nan) for name in ("e2e_ms", "ttft_ms"))
    share = 1 - first / whole if whole and whole > 0 else math.nan
    return share if 0 < share <= 1 else 1.0


def _token_seconds(point: LoadPointRecord, answers: int, tokens: float) -> float:
    """Seconds a request waits for each token after its first."""
    whole, first = (point.metrics.get(name, math.nan) for name in ("e2e_ms", "ttft_ms"))
    spent = (whole - first) / 1000 * answers / tokens
    return spent if spent > 0 else point.metrics.get("tpot_ms", math.nan) / 1000


def _is_first(trial: TrialRecord, point: LoadPointRecord) -> bool:
    return len(trial.load_points) == 1 or point is trial.load_points[0]


def _drafts(trial: TrialRecord, acceptance: AcceptanceRecord, steps: float) -> tuple[float, float]:
    """Share of steps with a draft, and drafted tokens per draft."""
    depth = flag_number(trial, DEPTH) or float(len(acceptance.per_position)) or 1.0
    known = acceptance.drafted
    drafts = min(float(acceptance.steps or steps), steps)
    if not is_lookup(trial):  # a draft model drafts at every step
        return 1.0, known / drafts if known and drafts else depth
    if known:
        drafts = min(drafts, max(known / depth, known / max(depth, 1.0)))
        return drafts / steps, known / drafts
    return drafts / steps, depth


def _passes(trial: TrialRecord, verified: float) -> float:
    if is_lookup(trial):
        return 0.0
    width, depth = flag_number(trial, WIDTH) or 1.0, flag_number(trial, DEPTH)
    return depth if depth and width > 1 else verified
