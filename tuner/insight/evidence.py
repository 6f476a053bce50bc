"""Owns what the trials of a study say together: counts, noise, depths tried, what flags, NCCL
variables and loads were measured to give."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner import units
from tuner.drafts.opening import read_checkpoint
from tuner.drafts.sizes import count_sizes
from tuner.errors import TunerError
from tuner.insight.counts import DEPTH, WIDTH, Steps, count_steps, flag_number
from tuner.insight.crossover import Crossover
from tuner.insight.curve import Curve, curve_of
from tuner.insight.inert import LEAST_NOISE
from tuner.insight.levers import Lever
from tuner.store.baselines import sentinels_of
from tuner.store.record import TrialRecord
from tuner.store.stored import StoredStudy

DRAFT_FLAGS = ("draft-model-path", "speculative-config.model", "model-draft")

METHOD_FLAGS = ("speculative-algorithm", "speculative-config.method", "spec-type")

NOISE = 2.83
"""Two launches differ by up to so many standard deviations of one without meaning anything."""

LEAST_SAVING = 0.01


def speed_noise(study: StoredStudy) -> float:
    """Relative difference of two launches that means nothing, by the baseline's repeats; what a
    drift explains is no noise."""
    sd = sentinels_of(study.trials, study.metric, study.load).noise.sd
    return max(LEAST_NOISE, NOISE * sd) if math.isfinite(sd) else LEAST_NOISE


def counted(study: StoredStudy, *, is_synthetic: bool = False) -> dict[int, Steps]:
    """Every measured trial in counts, by number: the real ones, or the synthetic ones."""
    chosen = [
        t
        for t in study.trials
        if t.state == "baseline"
        or (t.state in ("complete", "pruned") and t.is_synthetic == is_synthetic)
    ]
    pairs = ((t.number, count_steps(t, study.load)) for t in chosen)
    return {number: steps for number, steps in pairs if steps is not None}


def shares_clock(one: TrialRecord, other: TrialRecord) -> bool:
    """Only servers with the same environment share a clock; the baseline always does."""
    return one.state == "baseline" or one.requested_args.env == other.requested_args.env


def depths_tried(study: StoredStudy, trial: TrialRecord) -> frozenset[int]:
    """Depths that were measured at the trial's width, whatever else differed."""
    width = flag_number(trial, WIDTH)
    return frozenset(
        round(depth)
        for each in study.trials
        if each.state in ("complete", "pruned", "reused") and flag_number(each, WIDTH) == width
        and (depth := flag_number(each, DEPTH))
    )  # fmt: skip


def deepest_curve(study: StoredStudy, trial: TrialRecord, curve: Curve) -> Curve:
    """The trial's curve, continued by the deepest measured trial of the same width."""
    width = flag_number(trial, WIDTH)
    others = [
        found
        for each in study.trials
        if each.state in ("complete", "pruned") and flag_number(each, WIDTH) == width
        and each.is_synthetic == trial.is_synthetic and _method(each) == _method(trial)
        and (found := curve_of(each.acceptance, each.acceptance_length))
    ]  # fmt: skip
    return curve.extended_by(max(others, key=lambda each: len(each.positions), default=curve))


def _method(trial: TrialRecord) -> tuple[object, ...]:
    """What names the kind of draft among the flags."""
    flags = trial.requested_args.flags
    return tuple(flags.get(name) for name in METHOD_FLAGS)


def flags_lever(study: StoredStudy, trial: TrialRecord) -> Lever | None:
    """What the search of flags itself gave, measured."""
    found = study.recommendation
    finalist = next(
        (f for f in (found.finalists if found else []) if f.trial == trial.number), None
    )
    change = f"what the search found: trial {trial.number} as a ratio to the baseline"
    if finalist is not None:
        return Lever("all flags", change, finalist.ratio, finalist.low, finalist.high, "measured")
    if trial.vs_baseline is None:
        return None
    ratio, half = trial.vs_baseline, (trial.half_width or 0.0) / (trial.value or math.inf)
    low, high = ratio * math.exp(-half), ratio * math.exp(half)
    return Lever("all flags", change, ratio, low, high, "measured")


def load_lever(crossover: Crossover | None, load: str) -> list[Lever]:
    """The load at which the server gains most over the baseline, if it is another."""
    points = crossover.points if crossover else ()
    here = next((each for each in points if each.load == load), None)
    best = max(points, key=lambda each: each.ratio, default=None)
    if here is None or best is None or best is here or best.ratio <= here.ratio:
        return []
    change = (
        f"{units.ratio(best.ratio)} baseline at {best.load}, {units.ratio(here.ratio)} at {load}"
    )
    low, high = best.low / here.ratio, best.high / here.ratio
    return [Lever("other load", change, best.ratio / here.ratio, low, high, "measured")]


def nccl_saving(
    trials: Sequence[TrialRecord], trial: TrialRecord, known: Mapping[int, Steps]
) -> float | None:
    """Largest share of a step that NCCL settings saved, when `trial` does not have them yet."""
    best, chosen = 0.0, None
    for one, other in _nccl_pairs(trials, known):
        saving = 1 - known[other.number].seconds / known[one.number].seconds
        if saving > best:
            best, chosen = saving, other
    if chosen is None or best < LEAST_SAVING or _nccl(chosen) == _nccl(trial):
        return None
    return best


def _nccl_pairs(
    trials: Sequence[TrialRecord], known: Mapping[int, Steps]
) -> list[tuple[TrialRecord, TrialRecord]]:
    """Ordered pairs of counted speculative trials that differ in NCCL variables alone."""
    usable = [t for t in trials if t.number in known and known[t.number].drafting]
    return [
        (one, other)
        for one in usable
        for other in usable
        if one.requested_args.flags == other.requested_args.flags and _nccl(one) != _nccl(other)
    ]


def _nccl(trial: TrialRecord) -> dict[str, str | None]:
    env = trial.requested_args.env
    return {name: value for name, value in env.items() if name.startswith("NCCL_")}


def draft_head(trial: TrialRecord) -> tuple[float | None, int]:
    """The lm_head's share of the weights a draft pass reads, and the draft's vocabulary."""
    flags = trial.requested_args.flags
    path = next((v for n, v in flags.items() if n.endswith(DRAFT_FLAGS)), None)
    if not isinstance(path, str) or not (Path(path) / "config.json").is_file():
        return None, 0
    try:
        draft = read_checkpoint(path)
    except TunerError:
        return None, 0
    sizes = count_sizes(draft)
    vocabulary = draft.setting("draft_vocab_size") or draft.setting("vocab_size") or 0
    used = sizes.total - sizes.embedding
    return (sizes.lm_head / used if used > 0 else None), int(vocabulary)
