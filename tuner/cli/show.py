"""Owns the screens of `tuner show`: a study's table, one trial in full; plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tuner import units
from tuner.cli.table import header, trial_line, trial_text, unit_of
from tuner.insight.sentences import recommendation_lines
from tuner.store.announcing import as_finished
from tuner.store.record import LoadPointRecord, TrialRecord
from tuner.store.stored import StoredStudy

_LABEL = 18
_PERCENTILES = ("p50", "p90", "p95", "p99")
_PERCENTILE = re.compile(r"_p(50|90|95|99)(?=_|$)")


def study_document(study: StoredStudy, only: TrialRecord | None = None) -> dict[str, Any]:
    """The `--json` document of a study, with all its trials or one."""
    baseline, found = study.baseline, study.recommendation
    trials = study.trials if only is None else [only]
    return {
        "name": study.name,
        "objective": {"metric": study.metric, "direction": study.direction, "load": study.load},
        "trials": [trial.model_dump(mode="json") for trial in trials],
        "baseline": None if baseline is None else baseline.model_dump(mode="json"),
        "recommendation": None if found is None else found.model_dump(mode="json"),
    }


def study_lines(study: StoredStudy, width: int | None) -> list[str]:
    """The table of all trials and the recommendation."""
    rows = [trial_line(as_finished(trial), width) for trial in study.trials]
    notes = _notes(study)
    ending = recommendation_lines(study.recommendation)
    return [study.title, "", header(study.metric, width), *rows, "", *notes, *ending]


def trial_lines(study: StoredStudy, trial: TrialRecord) -> list[str]:
    """One trial in full; nothing is cut."""
    sections = [
        _head(study, trial),
        _arguments(trial),
        _metrics(trial),
        _acceptance(trial),
        _seconds(trial),
        _ending(trial),
    ]
    return [line for section in sections for line in section]


def _notes(study: StoredStudy) -> list[str]:
    count = sum(len(trial.warnings) for trial in study.trials)
    notes = []
    if study.is_simulated:
        notes.append("Simulated: the numbers are replayed or scripted, nothing was measured.")
    if any(trial.is_synthetic for trial in study.trials):
        notes.append("Synthetic acceptance in some trials: never recommended.")
    if count:
        word = "warning" if count == 1 else "warnings"
        notes.append(f"{count} {word}; read them with `tuner show {study.name} TRIAL`.")
    return [*notes, ""] if notes else []


def _head(study: StoredStudy, trial: TrialRecord) -> list[str]:
    lines = [f"{study.title}", f"trial {trial.number}, {trial.state}: {_what(trial)}"]
    if trial.hint:
        lines.append(f"  {trial.hint}")
    if trial.state == "failed" and trial.failure:
        lines.append(f"  What it means: tuner trouble {trial.failure}")
    if trial.value is not None:
        lines.append(_pair("value", _result(study, trial, trial.value)))
    if trial.drift:
        word = "faster" if trial.drift > 0 else "slower"
        moved = f"{units.percent(abs(trial.drift))} {word} than usual"
        lines.append(_pair("drift", f"the machine was {moved} at this launch: taken out"))
    if trial.predicted is not None:
        lines.append(_pair("predicted", f"{units.ratio(trial.predicted)} baseline"))
    marks = [name for name in ("synthetic", "lossy", "simulated") if _is(trial, name)]
    return [*lines, *([_pair("marks", ", ".join(marks))] if marks else [])]


def _result(study: StoredStudy, trial: TrialRecord, value: float) -> str:
    words = f"{units.plus_minus(value, trial.half_width)} {unit_of(study.metric)}".split()
    versus = trial.vs_baseline
    return " ".join(words) + ("" if versus is None else f", {units.ratio(versus)} baseline")


def _what(trial: TrialRecord) -> str:
    return trial_text(as_finished(trial)) or "no parameters"


def _is(trial: TrialRecord, name: str) -> bool:
    return bool(getattr(trial, f"is_{name}"))


def _arguments(trial: TrialRecord) -> list[str]:
    requested = trial.requested_args
    flags = [f"  --{name} {_value(value)}" for name, value in sorted(requested.flags.items())]
    env = [
        f"  {name} removed" if value is None else f"  {name}={value}"
        for name, value in sorted(requested.env.items())
    ]
    other = [
        f"  --{name} {_value(value)}"
        for name, value in sorted(trial.effective_args.items())
        if name in requested.flags and requested.flags[name] != value
    ]
    heading = ["", f"server {trial.digest}"] if flags or env else []
    changed = ["  the running server used instead:", *other] if other else []
    return [*heading, *flags, *env, *changed]


def _metrics(trial: TrialRecord) -> list[str]:
    return [line for point in trial.load_points for line in _load_point(point)]


def _load_point(point: LoadPointRecord) -> list[str]:
    """One load point: a metric per line, its percentiles beside its value."""
    bad = f", {point.errors} failed" if point.errors else ""
    heading = f"at {point.load}, {point.requests} requests{bad}"
    used = [p for p in _PERCENTILES if any(f"_{p}" in name for name in point.metrics)]
    lines = ["", f"{heading:<28}" + "".join(f"{name:>9}" for name in ("overall", *used))]
    for name in _base_names(point.metrics):
        stem, unit = (name[:-3], "_ms") if name.endswith("_ms") else (name, "")
        values = [name, *(f"{stem}_{percentile}{unit}" for percentile in used)]
        cells = "".join(f"{_cell(point.metrics, value):>9}" for value in values)
        lines.append(f"  {name:<26}{cells}".rstrip())
    return lines


def _base_names(metrics: Mapping[str, float]) -> list[str]:
    """Names without their percentiles, the speed first."""
    found = {_PERCENTILE.sub("", name) for name in metrics}
    return sorted(found, key=lambda name: (not name.startswith("output_tokens"), name))


def _cell(metrics: Mapping[str, float], name: str) -> str:
    value = metrics.get(name)
    return "" if value is None or value != value else units.number(value)


def _acceptance(trial: TrialRecord) -> list[str]:
    if trial.acceptance_length is None:
        return []
    basis = f" (from {trial.acceptance.basis})" if trial.acceptance else ""
    lines = ["", _pair("acceptance", f"{trial.acceptance_length:.2f} tokens per step{basis}")]
    if trial.acceptance_per_position:
        shares = " ".join(f"{share:.0%}" for share in trial.acceptance_per_position)
        lines.append(_pair("  by position", shares))
    if trial.cycle:
        parts = ", ".join(f"{name} {value * 1000:.1f} ms" for name, value in trial.cycle.items())
        lines.append(_pair("  step", parts))
    if trial.outputs_match is not None:
        lines.append(_pair("same answers", f"{trial.outputs_match:.0%} of the baseline's"))
    return lines


def _seconds(trial: TrialRecord) -> list[str]:
    seconds = trial.seconds
    if not seconds.total:
        return []
    parts = (
        f"{name} {units.clock(getattr(seconds, field))}"
        for name, field in (
            ("launch", "launch"),
            ("warm-up", "warm_up"),
            ("measure", "measure"),
            ("stop", "stop"),
        )
    )
    return ["", _pair("time", f"{units.clock(seconds.total)}: {', '.join(parts)}")]


def _ending(trial: TrialRecord) -> list[str]:
    lines = [f"warning: {text}" for text in trial.warnings]
    lines += ["  What it means: tuner trouble TEXT"] if lines else []
    broken = [name for name, violation in trial.constraints.items() if violation > 0]
    lines += [f"breaks the constraint {name}" for name in broken]
    if trial.log_path:
        lines.append(_pair("log", trial.log_path))
    return ["", *lines] if lines else []


def _pair(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
