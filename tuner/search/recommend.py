"""Owns the verdict: which confirmed server is recommended, or why the baseline is kept.

Pure: launches of the confirmation in, a recommendation out. Whether a server beats the baseline,
and the interval of its gain, rest on these launches alone: the search's own numbers are the best
of many noisy ones. Which of several that do is best may be the model's to say (see choosing).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.measure.noise import LaunchNoise, smallest_detectable_gain
from tuner.measure.statistics import (
    Interval,
    family_level,
    gain_intervals,
)
from tuner.search.choosing import choose
from tuner.search.objective import Objective
from tuner.search.weighing import Expected
from tuner.store.record import FAITHFUL, ConfirmationLaunch, FinalistRecord

LEVEL = 0.95
UNKNOWN_NOISE = LaunchNoise(math.nan, 0)


@dataclass(frozen=True, slots=True)
class Finalist:
    """A server that enters the confirmation; trial 0 is the baseline."""

    trial: int
    digest: str
    complexity: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The winner (None: keep the baseline), every finalist's interval, and the reasons."""

    winner: FinalistRecord | None
    finalists: tuple[FinalistRecord, ...]
    reasons: tuple[str, ...]
    smallest_detectable: float | None
    decided_by: str = ""


def judge_finalists(
    objective: Objective,
    finalists: Sequence[Finalist],
    launches: Sequence[ConfirmationLaunch],
    fidelity: Mapping[str, str],
    noise: LaunchNoise,
) -> list[FinalistRecord]:
    """Every finalist's gain over the baseline, intervals that hold together; those with fewer
    than two complete rounds are left out."""
    intervals = intervals_of(objective, finalists, launches, noise)
    records = []
    for finalist, interval in zip(finalists, intervals, strict=True):
        pairs = paired_rounds(finalist, launches)
        if len(pairs) < 2 or interval.replicates < 2:
            continue
        values = [server.value for server, _ in pairs if server.value]
        records.append(
            FinalistRecord(
                trial=finalist.trial,
                digest=finalist.digest,
                ratio=interval.ratio,
                low=interval.low,
                high=interval.high,
                launches=interval.replicates,
                constraints_met=constraints_met(objective, pairs),
                fidelity=fidelity.get(finalist.digest, "not checked"),
                value=float(np.mean(values)) if values else None,
            )
        )
    return sorted(records, key=lambda record: -record.ratio)


def intervals_of(
    objective: Objective,
    finalists: Sequence[Finalist],
    launches: Sequence[ConfirmationLaunch],
    noise: LaunchNoise,
) -> list[Interval]:
    """The gains of all finalists over the baseline, from all rounds together."""
    rounds = 1 + max((launch.round for launch in launches), default=-1)
    trials = [0, *(finalist.trial for finalist in finalists)]
    series = {trial: [list[float]() for _ in range(rounds)] for trial in trials}
    for launch in launches:
        if launch.failure is None and launch.trial in series:
            series[launch.trial][launch.round] = launch.per_block
    return gain_intervals(
        [series[finalist.trial] for finalist in finalists],
        series[0],
        direction=objective.direction,
        level=family_level(LEVEL, len(finalists)),
        noise=(noise.sd, noise.df),
    )


def paired_rounds(
    finalist: Finalist, launches: Sequence[ConfirmationLaunch]
) -> list[tuple[ConfirmationLaunch, ConfirmationLaunch]]:
    """The finalist's and the baseline's launch of each round that has both."""
    baseline = {launch.round: launch for launch in launches if launch.trial == 0}
    mine = [launch for launch in launches if launch.digest == finalist.digest and launch.trial]
    return [
        (launch, baseline[launch.round])
        for launch in mine
        if launch.failure is None
        and launch.round in baseline
        and baseline[launch.round].failure is None
    ]


def constraints_met(
    objective: Objective, pairs: Sequence[tuple[ConfirmationLaunch, ConfirmationLaunch]]
) -> bool:
    """Outcome constraints on the medians over rounds of the confirmed numbers."""
    server = median_metrics([launch for launch, _ in pairs])
    baseline = median_metrics([launch for _, launch in pairs])
    return all(violation <= 0 for violation in objective.violations(server, baseline).values())


def median_metrics(launches: Sequence[ConfirmationLaunch]) -> dict[str, float]:
    """Each metric's median over launches."""
    names = sorted({name for launch in launches for name in launch.metrics})
    return {
        name: float(np.median([each.metrics[name] for each in launches if name in each.metrics]))
        for name in names
    }


def decide(
    objective: Objective,
    finalists: Sequence[Finalist],
    launches: Sequence[ConfirmationLaunch],
    fidelity: Mapping[str, str],
    noise: LaunchNoise = UNKNOWN_NOISE,
    expected: Mapping[str, Expected] | None = None,
) -> Verdict:
    """The verdict over all finalists: the best of those that beat the baseline by more than the
    noise. `expected` is what a model says of each, for those that launches cannot tell apart."""
    judged = judge_finalists(objective, finalists, launches, fidelity, noise)
    least = smallest_gain(objective, finalists, launches, noise)
    usable = [record for record in judged if is_usable(record)]
    if not usable:
        return Verdict(None, tuple(judged), tuple(keep_reasons(judged, least)), least)
    complexity = {finalist.digest: finalist.complexity for finalist in finalists}
    choice = choose(objective, usable, complexity, launches, expected)
    faster = [each for each in judged if each.ratio > choice.winner.ratio]
    reasons = (*choice.reasons, *disqualified(faster))
    return Verdict(choice.winner, tuple(judged), reasons, least, choice.decided_by)


def disqualified(judged: Sequence[FinalistRecord]) -> list[str]:
    """What bars finalists from being recommended, however fast they are."""
    reasons = []
    for record in judged:
        if not record.constraints_met:
            reasons.append(f"Trial {record.trial} breaks an outcome constraint.")
        if record.fidelity not in FAITHFUL:
            reasons.append(
                f"Trial {record.trial} changes the answers (output_mismatch): {record.fidelity}."
            )
    return reasons


def is_usable(record: FinalistRecord) -> bool:
    """True when a finalist may be recommended at all."""
    return record.low > 1.0 and record.constraints_met and record.fidelity in FAITHFUL


def smallest_gain(
    objective: Objective,
    finalists: Sequence[Finalist],
    launches: Sequence[ConfirmationLaunch],
    noise: LaunchNoise,
) -> float | None:
    """The smallest true ratio this confirmation would have found 8 times in 10, from its own
    noise between rounds; None when that is not known."""
    intervals = intervals_of(objective, finalists, launches, noise)
    known = [each for each in intervals if each.replicates >= 2 and math.isfinite(each.sd)]
    if not known:
        return None
    rounds = max(interval.replicates for interval in known)
    # A round's gain holds the noise of two launches.
    launch_sd = math.sqrt(float(np.mean([interval.sd**2 for interval in known])) / 2.0)
    return smallest_detectable_gain(launch_sd, rounds, finalists=len(finalists))


def keep_reasons(judged: Sequence[FinalistRecord], noise: float | None) -> list[str]:
    """Why the baseline is kept, most decisive first."""
    if not judged:
        return ["No finalist could be confirmed."]
    best = judged[0]
    reasons = []
    if best.low <= 1.0:
        reasons.append("No server beat it by more than the noise.")
    reasons.append(
        f"Best finalist: trial {best.trial}, {best.ratio:.2f}x [{best.low:.2f}, {best.high:.2f}]."
    )
    reasons += disqualified(judged)
    if noise is not None:
        reasons.append(f"Smallest gain this study could have seen: {noise:.2f}x.")
    return reasons
