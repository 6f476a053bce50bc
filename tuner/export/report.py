"""Owns `REPORT.md`: the bundle explained to whoever has to run it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from tuner import __version__, units
from tuner.export.subject import SIMULATED, SYNTHETIC, UNCONFIRMED, UNFAITHFUL, Subject
from tuner.store.record import ScheduleRecord

_WARNINGS = {
    UNCONFIRMED: "**Not confirmed.** These are the search's own numbers, the best of many noisy "
    "ones; a confirmation on held-out prompts would likely show a smaller gain.",
    SYNTHETIC: "**Synthetic acceptance.** The engine was told how many draft tokens to accept; "
    "the speed is not what real prompts would give.",
    SIMULATED: "**Simulated.** The numbers are replayed or scripted; no real server was measured.",
    UNFAITHFUL: "**Other answers.** This server's answers differ from the baseline's by more than "
    "the baseline differs from itself.",
    "lossy": "**Lossy.** A setting trades the output distribution for speed.",
}


def render_report(
    subject: Subject, marks: tuple[str, ...], files: tuple[str, ...], port: int
) -> str:
    """The report as Markdown; `files` are the bundle's, `port` is where it listens."""
    provenance = subject.provenance
    parts = [
        f"# {provenance.study}: {'keep ' * subject.keeps_baseline}{subject.title}",
        *(_WARNINGS[name] for name in (*subject.flags, *marks) if name in _WARNINGS),
        _verdict(subject),
        "## The server",
        _settings(subject),
        _measured(subject),
        _noticed(subject),
        "## How it was measured",
        _method(subject),
        "## Start it",
        _start(files, port),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _schedule(schedule: ScheduleRecord) -> str:
    span = units.interval(schedule.low or 0.0, schedule.high or math.inf)
    first = (
        f"**{units.ratio(schedule.ratio or 0.0)} of trial {schedule.single}** (95 % interval "
        f"{span}), the best single server, under a load that moves through "
        f"{', '.join(schedule.sweep)}."
    )
    rows = [("load", "depth", "against the baseline there")]
    rows += [
        (step.load, str(step.depth), f"{units.ratio(step.ratio)} "
         f"{units.interval(step.low, step.high)}")
        for step in schedule.steps
    ]  # fmt: skip
    return "\n\n".join([first, *schedule.reasons, _table(rows)])


def _verdict(subject: Subject) -> str:
    if subject.schedule is not None:
        return _schedule(subject.schedule)
    found = subject.recommendation
    if subject.keeps_baseline:
        why = " ".join(found.reasons) if found else ""
        return f"Speculation is off: no server beat this one by more than the noise. {why}".strip()
    if found is None or found.ratio is None:
        ratio = subject.trial.vs_baseline
        once = "" if ratio is None else f" {units.ratio(ratio)} baseline in one launch."
        return f"Chosen by hand.{once}"
    span = ""
    if found.low is not None and found.high is not None:
        span = f" (95 % interval {units.interval(found.low, found.high)})"
    first = f"**{units.ratio(found.ratio)} baseline**{span} for `{subject.provenance.objective}`."
    return "\n\n".join([first, *(f"- {reason}" for reason in found.reasons)])


def _settings(subject: Subject) -> str:
    flags = [
        (f"`--{name}`", f"`{json.dumps(value, ensure_ascii=False)}`")
        for name, value in sorted(subject.args.flags.items())
    ]
    env = [
        (f"`{name}`", "removed" if value is None else f"`{value}`")
        for name, value in sorted(subject.args.env.items())
    ]
    env += [(f"`{name}`", "left out: without effect in the search") for name in subject.left_out]
    return _table([("setting", "value"), *flags, *env])


def _measured(subject: Subject) -> str:
    trial = subject.trial
    if subject.schedule is not None:
        return ""
    rows = [("metric", "value")]
    rows += [
        (f"`{name}`", units.number(value))
        for name, value in sorted(trial.metrics.items())
        if value == value
    ]
    if trial.acceptance_length is not None:
        rows.append(("acceptance length (bonus token counted)", f"{trial.acceptance_length:.2f}"))
    if len(rows) == 1:
        return ""
    return f"## Measured in the search\n\n{_table(rows)}"


def _noticed(subject: Subject) -> str:
    if subject.schedule is not None or not subject.trial.warnings:
        return ""
    lines = (" ".join(text.split()) for text in subject.trial.warnings)
    return "\n".join(["## Noticed while it was measured", "", *(f"- {text}" for text in lines)])


def _method(subject: Subject) -> str:
    provenance, finalist = subject.provenance, subject.finalist
    launches = ""
    if finalist is not None:
        launches = (
            f" This server and the baseline were launched {finalist.launches} times each, "
            "alternating, on prompts the search never saw; the interval comes from launches."
        )
    engine = " ".join(text for text in provenance.engine.values() if text) or "unknown engine"
    return (
        f"Every trial launched a real server ({engine}), warmed it up and sent it the same "
        "blocks of prompts; gains are ratios to the server without speculation, paired by block."
        f"{launches}"
        f" The result is valid for load `{provenance.load or 'unknown'}`, for prompts like those "
        f"measured (digest `{provenance.digests.get('prompts', 'unknown')}`), and for the host in "
        f"`manifest.json`. Written by tuner {__version__}."
    )


def _start(files: tuple[str, ...], port: int) -> str:
    lines = [f"    ./launch.sh          # on 127.0.0.1:{port}; HOST and PORT in front change that"]
    more = {
        "compose.yaml": "    docker compose up",
        "kubernetes.yaml": "    kubectl apply -f kubernetes.yaml",
        "tuner.service": "    sudo cp tuner.service /etc/systemd/system/ && "
        "sudo systemctl enable --now tuner",
    }
    lines += [text for name, text in more.items() if name in files]
    lines.append("    tuner verify .        # launch, measure, compare with this report")
    lines.append("    tuner verify . --baseline    # on another machine: against a baseline there")
    return "\n".join(lines)


def _table(rows: Sequence[tuple[Any, ...]]) -> str:
    rule = "|---" * len(rows[0]) + "|"
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], rule, *lines[1:]])
