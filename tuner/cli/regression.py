"""Owns `tuner check-regression`: is what is deployed still within a few percent of the best?

For scheduled jobs: another engine version or driver is the reason to ask, not a reason to refuse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import units
from tuner.args import ServerArgs
from tuner.cli.export import open_source
from tuner.cli.remeasuring import (
    OpenBundle,
    host_differences,
    measure_shown,
    open_bundle,
    work_folder,
)
from tuner.errors import Difference, UsageError
from tuner.measure.statistics import Interval
from tuner.search.remeasure import Contender, gain_between

TOLERANCE = 0.03
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class RegressionWish:
    """What the user asked for; `study` is where the best server comes from, "" the baseline."""

    folder: Path
    study: str = ""
    tolerance: float = TOLERANCE
    rounds: int = ROUNDS


@dataclass(frozen=True, slots=True)
class RegressionReport:
    """The bundle's speed as a ratio to what it is held against; 1 is as good."""

    interval: Interval
    against: str
    tolerance: float
    differences: tuple[Difference, ...] = ()

    @property
    def ok(self) -> bool:
        """False when it is slower by more than the tolerance and by more than the noise."""
        return self.interval.ratio >= 1 - self.tolerance or self.interval.high >= 1

    def to_json(self) -> dict[str, Any]:
        """The `--json` document."""
        return {
            "ok": self.ok,
            "ratio": self.interval.ratio,
            "low": self.interval.low,
            "high": self.interval.high,
            "launches": self.interval.replicates,
            "against": self.against,
            "tolerance": self.tolerance,
            "differences": [
                {"field": each.field, "stored": each.stored, "present": each.present}
                for each in self.differences
            ],
        }


def check_regression(wish: RegressionWish) -> RegressionReport:
    """Measure the bundle beside the study's recommended server, or beside the baseline.

    Beside a study the ratio is the bundle's to the recommended server. Beside the baseline it is
    today's gain to the confirmed one.

    Raises:
        UsageError: the study's server cannot be compared with the bundle, or there is no
            confirmed gain to compare with.
        EngineError: a server does not run.
    """
    bundle = open_bundle(wish.folder)
    differences = tuple(host_differences(bundle))
    if not wish.study:
        interval = _gain_now_to_confirmed(bundle, wish.rounds)
        return RegressionReport(interval, "its confirmed gain", wish.tolerance, differences)
    best, name = _best_of(wish.study, bundle)
    if best.args.digest == bundle.args.digest:
        same = Interval(1.0, 1.0, 1.0)
        return RegressionReport(same, f"{name}, the same server", wish.tolerance, differences)
    with work_folder() as work:
        found = measure_shown(bundle, [best, bundle.contender()], wish.rounds, work)
    interval = gain_between(found, bundle.evidence.direction)
    return RegressionReport(interval, name, wish.tolerance, differences)


def regression_lines(report: RegressionReport) -> list[str]:
    """The report as text."""
    found = report.interval
    span = units.interval(found.low, found.high)
    limit = f"{report.tolerance:.0%}"
    verdict = f"within {limit}" if report.ok else f"no longer within {limit}"
    if report.ok and found.ratio < 1 - report.tolerance:
        verdict = "slower, but by no more than the noise"
    first = f"The bundle is {units.ratio(found.ratio)} {span} of {report.against}: {verdict}."
    return [first, *map(_difference, report.differences)]


def _difference(each: Difference) -> str:
    return f"  {each.field}: confirmed with {each.stored}, now {each.present}"


def _gain_now_to_confirmed(bundle: OpenBundle, rounds: int) -> Interval:
    confirmed = bundle.manifest.get("confirmed") or {}
    if not confirmed.get("ratio") or confirmed.get("steps"):
        raise UsageError(
            f"{bundle.folder}: must have a confirmed gain over the baseline, got none.",
            "Name the study whose best server it is held against: --against STUDY.",
        )
    with work_folder() as work:
        servers = [bundle.baseline(work), bundle.contender()]
        now = gain_between(measure_shown(bundle, servers, rounds, work), bundle.evidence.direction)
    return _quotient(now, Interval(*(confirmed[name] for name in ("ratio", "low", "high"))))


def _quotient(now: Interval, then: Interval) -> Interval:
    """The ratio of two independent ratios; half widths add in quadrature in log units."""
    half = math.hypot(now.half_width, then.half_width)
    ratio = now.ratio / then.ratio
    return Interval(ratio, ratio * math.exp(-half), ratio * math.exp(half), now.replicates)


def _best_of(study: str, bundle: OpenBundle) -> tuple[Contender, str]:
    """The server a study recommends, launched as the study launches it, and its name."""
    source = open_source(study)
    found = source.stored.recommendation
    if found is None:
        raise UsageError(
            f"study {source.stored.name}: must have a recommendation, got none.",
            f"Run `tuner run {study}` first.",
        )
    _refuse_strangers(source.engine.kind, source.loaded.config.engine.model, bundle)
    args = ServerArgs(found.server_args.flags, found.server_args.env)
    keeps = found.verdict == "keep_baseline"
    name = f"{source.stored.name}'s {'baseline' if keeps else f'trial {found.trial}'}"
    engine = source.engine
    return Contender(0, "best", args, lambda port: engine.command(args, port)), name


def _refuse_strangers(kind: str, model: str, bundle: OpenBundle) -> None:
    ours: Sequence[str] = (bundle.engine.kind, bundle.section.model)
    if (kind, model) != tuple(ours):
        raise UsageError(
            f"--against: must be a study of {' '.join(ours)}, got {kind} {model}.",
            "Name the study that tunes what this bundle serves.",
        )
