"""Owns `tuner compare`: two trials of a study, paired by block or by confirmation round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tuner import units
from tuner.cli.table import params_text
from tuner.errors import UsageError
from tuner.store.record import TrialRecord
from tuner.store.stored import StoredStudy

LAUNCHES = "launches"
BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many times better trial `a` is than trial `b`, with a 95 % interval.

    `basis` says what the interval rests on: launches (rounds of the confirmation) or only the
    blocks within one launch of each, which know nothing of launch-to-launch noise.
    """

    a: TrialRecord
    b: TrialRecord
    ratio: float
    low: float
    high: float
    basis: str
    pairs: int

    @property
    def verdict(self) -> str:
        """`better`, `worse` or `no difference found`."""
        if self.low > 1.0:
            return "better"
        return "worse" if self.high < 1.0 else "no difference found"


def compare_trials(study: StoredStudy, a: int, b: int) -> Comparison:
    """Compare two trials; confirmation rounds are used where both have at least two.

    Raises:
        UsageError: a trial does not exist, or has no blocks in common with the other.
    """
    first, second = study.trial(a), study.trial(b)
    rounds = _rounds(study, first, second)
    if len(rounds) >= 2:
        return _from_rounds(study, first, second, rounds)
    return _from_blocks(study, first, second)


def comparison_document(study: StoredStudy, found: Comparison) -> dict[str, Any]:
    """The `--json` document."""
    return {
        "study": study.name,
        "a": found.a.number,
        "b": found.b.number,
        "metric": study.metric,
        "load": study.load,
        "ratio": found.ratio,
        "low": found.low,
        "high": found.high,
        "verdict": found.verdict,
        "basis": found.basis,
        "pairs": found.pairs,
    }


def comparison_lines(study: StoredStudy, found: Comparison) -> list[str]:
    """The comparison in sentences."""
    a, b = f"trial {found.a.number}", f"trial {found.b.number}"
    gain = f"{units.ratio(found.ratio)} {units.interval(found.low, found.high)}"
    sentence = {
        "better": f"{a} is better: {gain} of {b}.",
        "worse": f"{a} is worse: {gain} of {b}.",
        "no difference found": f"No difference found: {a} is {gain} of {b}.",
    }[found.verdict]
    note = f"From {found.pairs} confirmation rounds on held-out prompts."
    if found.basis == BLOCKS:
        note = (
            f"From {found.pairs} blocks of one launch each; another launch may differ by more. "
            f"Confirm with `tuner confirm {study.name} {found.a.number} {found.b.number}`."
        )
    rows = [f"  {name}: {_described(trial)}" for name, trial in ((a, found.a), (b, found.b))]
    return [study.title, *rows, sentence[0].upper() + sentence[1:], f"  {note}"]


def _described(trial: TrialRecord) -> str:
    words = params_text(trial.params) or "speculation off"
    if trial.value is None:
        return words
    return f"{words}, {' '.join(units.plus_minus(trial.value, trial.half_width).split())}"


def _rounds(study: StoredStudy, a: TrialRecord, b: TrialRecord) -> list[tuple[Any, Any]]:
    """Launches of both servers in the same round of the same campaign."""
    usable = [launch for launch in study.confirmations if not launch.failure and not launch.loads]
    found = []
    for one in usable:
        for other in usable:
            same = (one.campaign, one.round) == (other.campaign, other.round)
            if same and (one.trial, other.trial) == (a.number, b.number):
                found.append((one, other))
    return found


def _from_rounds(
    study: StoredStudy, a: TrialRecord, b: TrialRecord, rounds: list[tuple[Any, Any]]
) -> Comparison:
    from tuner.measure.statistics import gain_interval

    interval = gain_interval(
        [one.per_block for one, _ in rounds],
        [other.per_block for _, other in rounds],
        direction=study.direction,
    )
    return Comparison(a, b, interval.ratio, interval.low, interval.high, LAUNCHES, len(rounds))


def _from_blocks(study: StoredStudy, a: TrialRecord, b: TrialRecord) -> Comparison:
    from tuner.measure.statistics import log_ratios, mean_interval

    ours, theirs = (trial.series(study.metric, study.load) for trial in (a, b))
    ratios = log_ratios(ours, theirs, study.direction)
    if len(ratios) < 2:
        raise UsageError(
            f"study {study.name}: trials {a.number} and {b.number} must share at least two "
            f"measured blocks, got {len(ratios)}.",
            "Choose trials that `tuner show` lists with a value.",
        )
    drifted = _machine(study, a) - _machine(study, b)
    mean, low, high = (math.exp(value - drifted) for value in mean_interval(ratios))
    return Comparison(a, b, mean, low, high, BLOCKS, len(ratios))


def _machine(study: StoredStudy, trial: TrialRecord) -> float:
    """Log units by which the machine was faster than usual at a trial's launch, as `vs_baseline`
    takes it out; a baseline's own record does not say."""
    if trial.state != "baseline":
        return math.log1p(trial.drift or 0.0)
    if all(each.drift is None for each in study.trials):
        return 0.0
    from tuner.store.baselines import launch_places, sentinels_of

    found = sentinels_of(study.trials, study.metric, study.load)
    shift = found.shift(launch_places(study.trials)[trial.number])
    return shift if study.direction == "maximize" else -shift
