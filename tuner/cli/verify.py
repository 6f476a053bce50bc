"""Owns `tuner verify`: is what a bundle starts the server that was measured, and as fast?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner import units
from tuner.cli.remeasuring import (
    OpenBundle,
    host_differences,
    measure_shown,
    open_bundle,
    work_folder,
)
from tuner.errors import Difference, StudyMismatch, UsageError
from tuner.measure.statistics import Interval
from tuner.search.remeasure import (
    Remeasured,
    answers_by_prompt,
    effective_differences,
    gain_between,
    same_answers,
    same_speed,
    series_of,
)

FAILED = 1
"""Exit code of a bundle that is not what was measured."""


@dataclass(frozen=True, slots=True)
class VerifyWish:
    """What the user asked for; `rounds` None: one launch, two beside a baseline."""

    folder: Path
    baseline: bool = False
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One question about the bundle; `ok` None: it could not be answered."""

    name: str
    ok: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The answer: every finding, and the ratio it rests on.

    `against` says what the ratio is to: the confirmation's own launches (`record`), or the
    server without speculation as it was measured now (`baseline`).
    """

    findings: tuple[Finding, ...]
    against: str
    interval: Interval
    differences: tuple[Difference, ...] = ()
    value: float | None = None
    recorded: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when no question was answered with no."""
        return all(finding.ok is not False for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The `--json` document."""
        return {
            "ok": self.ok,
            "ratio": self.interval.ratio,
            "low": self.interval.low,
            "high": self.interval.high,
            "against": self.against,
            "launches": self.interval.replicates,
            "value": self.value,
            "recorded": dict(self.recorded),
            "checks": [
                {"name": each.name, "ok": each.ok, "detail": each.detail} for each in self.findings
            ],
            "differences": [
                {"field": each.field, "stored": each.stored, "present": each.present}
                for each in self.differences
            ],
            "warnings": list(self.warnings),
        }


def verify_bundle(wish: VerifyWish) -> VerifyReport:
    """Launch what the bundle starts, measure it, compare it with the bundle's record.

    Raises:
        StoreError: it is no bundle, or was changed.
        StudyMismatch: this is another machine, engine or model, and no baseline was asked for.
        EngineError: the server does not run here.
    """
    bundle = open_bundle(wish.folder)
    differences = host_differences(bundle)
    rounds = wish.rounds or (2 if wish.baseline else 1)
    _refuse(bundle, wish, differences, rounds)
    with work_folder() as work:
        contenders = [bundle.contender()]
        if wish.baseline:
            contenders = [bundle.baseline(work), *contenders]
        found = measure_shown(bundle, contenders, rounds, work)
    if wish.baseline:
        return _against_baseline(bundle, found, differences)
    return _against_record(bundle, found)


def verify_lines(report: VerifyReport) -> list[str]:
    """The report as text."""
    words = {True: "ok", False: "FAILED", None: "not known"}
    lines = [f"  {each.name:<9} {words[each.ok]:<10} {each.detail}" for each in report.findings]
    lines += [
        f"  host      differs    {each.field}: measured with {each.stored}, here {each.present}"
        for each in report.differences
    ]
    lines += [f"warning: {text}" for text in report.warnings]
    verdict = "is what was measured" if report.ok else "is not what was measured"
    return [f"The bundle {verdict}.", *lines]


def _refuse(
    bundle: OpenBundle, wish: VerifyWish, differences: Sequence[Difference], rounds: int
) -> None:
    if differences and not wish.baseline:
        raise StudyMismatch(
            bundle.name,
            differences,
            "Add --baseline: the bundle is then judged against a baseline measured here.",
        )
    if wish.baseline and rounds < 2:
        raise UsageError("--rounds: must be at least 2 with --baseline, got 1.", "Ask for more.")


def _against_record(bundle: OpenBundle, found: Sequence[Remeasured]) -> VerifyReport:
    evidence = bundle.evidence
    interval = same_speed(series_of(found, 1), evidence.launches, evidence.direction)
    recorded = evidence.answers if evidence.is_greedy else {}
    findings = [_same_server(bundle, found), _speed(interval), _answers(bundle, recorded, found)]
    return _report(bundle, found, findings, interval)


def _against_baseline(
    bundle: OpenBundle, found: Sequence[Remeasured], differences: Sequence[Difference]
) -> VerifyReport:
    interval = gain_between(found, bundle.evidence.direction)
    beside = [each.answers for each in found if each.number == 0]
    recorded = answers_by_prompt(beside) if bundle.evidence.is_greedy else {}
    findings = [
        _same_server(bundle, found, is_elsewhere=bool(differences)),
        _gain(bundle, interval, is_elsewhere=bool(differences)),
        _answers(bundle, recorded, found),
    ]
    report = _report(bundle, found, findings, interval)
    return replace(report, against="baseline", differences=tuple(differences))


def _same_server(
    bundle: OpenBundle, found: Sequence[Remeasured], *, is_elsewhere: bool = False
) -> Finding:
    """What the running server says of itself, against what the measured one said.

    Elsewhere sizes follow the machine: only what was asked for must hold.
    """
    mine = next(each for each in found if each.number == 1)
    drifted = [(d.name, d.requested, d.effective) for d in mine.drifts]
    recorded = bundle.manifest["server"]["effective"]
    if is_elsewhere or not recorded or not mine.effective:
        changed = drifted
    else:
        changed = effective_differences(recorded, mine.effective)
    if changed:
        shown = "; ".join(f"{name}: was {old}, is {new}" for name, old, new in changed)
        return Finding("server", False, shown)
    if not mine.effective:
        return Finding("server", None, "the running server reports no values")
    return Finding("server", True, f"{len(mine.effective)} reported values are as recorded")


def _speed(interval: Interval) -> Finding:
    if math.isnan(interval.ratio):
        return Finding("speed", None, "it was exported without confirmed launches to compare")
    shown = f"{units.ratio(interval.ratio)} the confirmed speed {_span(interval)}"
    if interval.high < 1:
        return Finding("speed", False, f"{shown}: slower by more than the noise of launches")
    if interval.low > 1:
        return Finding("speed", True, f"{shown}: faster than it was")
    return Finding("speed", True, f"{shown}: no difference found")


def _gain(bundle: OpenBundle, interval: Interval, *, is_elsewhere: bool) -> Finding:
    shown = f"{units.ratio(interval.ratio)} the baseline here {_span(interval)}"
    if not bundle.engine.is_speculative(bundle.args):
        return Finding("speed", None, f"{shown}; the bundle is the baseline itself")
    confirmed = bundle.manifest.get("confirmed")
    is_table = bool(confirmed and confirmed.get("steps"))  # its interval is to a single server
    if is_elsewhere or is_table or not confirmed or not confirmed.get("low"):
        return Finding("speed", interval.is_gain, shown)
    low, high = confirmed["low"], confirmed["high"]
    ok = interval.high >= low
    return Finding("speed", ok, f"{shown}; confirmed was {units.interval(low, high)}")


def _answers(
    bundle: OpenBundle, recorded: Mapping[str, Sequence[str]], found: Iterable[Remeasured]
) -> Finding:
    mine = next(each for each in found if each.number == 1)
    if not bundle.evidence.is_greedy:
        return Finding("outputs", None, "answers are sampled, or were never compared")
    judged = same_answers(recorded, mine.answers, is_strict=bundle.evidence.is_strict)
    if judged is None:
        return Finding("outputs", None, "no answers of a baseline were recorded")
    return Finding("outputs", *judged)


def _report(
    bundle: OpenBundle,
    found: Sequence[Remeasured],
    findings: Sequence[Finding],
    interval: Interval,
) -> VerifyReport:
    values = [e.launch.value for e in found if e.number == 1 and e.launch.value is not None]
    return VerifyReport(
        findings=tuple(findings),
        against="record",
        interval=interval,
        value=sum(values) / len(values) if values else None,
        recorded=dict(bundle.manifest.get("confirmed") or {}),
        warnings=tuple(dict.fromkeys(w for each in found for w in each.warnings)),
    )


def _span(interval: Interval) -> str:
    return units.interval(interval.low, interval.high)
