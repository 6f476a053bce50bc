"""Owns what the dashboard says about a study: Markdown notes and the charts of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tuner import units
from tuner.insight.figures import study_figures
from tuner.insight.leverage import Explanation
from tuner.store.dashboard_content import DashboardContent
from tuner.store.record import TrialRecord
from tuner.store.stored import StoredStudy

CHARTS = ("trials", "levers", "acceptance", "cycle", "shape", "crossover", "noise")
"""Charts in the order of their names in the dashboard, which sorts them."""


def dashboard_content(
    study: StoredStudy, found: Explanation, verdict: Sequence[str]
) -> DashboardContent:
    """Notes and charts of a stored study; every text of the user's is escaped."""
    figures = study_figures(study, found)
    charts = {
        f"{place}-{name}": _chart(figures[name].title, figures[name].document())
        for place, name in enumerate((n for n in CHARTS if n in figures), start=1)
    }
    notes = {trial.number: trial_note(trial) for trial in study.trials}
    return DashboardContent(study_note(study, found, verdict), notes, charts)


def study_note(study: StoredStudy, found: Explanation, verdict: Sequence[str]) -> str:
    """The verdict, the largest lever, and how to go on."""
    parts = [f"## {escape(verdict[0])}"] if verdict else []
    parts += _bullets(line.strip() for line in verdict[1:])
    parts += ["", f"**{escape(found.sentence)}**"]
    if found.crossover is not None:
        parts += ["", escape(found.crossover.sentence)]
    if found.levers:
        rows = [
            (each.name, each.change, units.ratio(each.ratio),
             units.interval(each.low, each.high), each.basis)
            for each in found.levers
        ]  # fmt: skip
        parts += ["", *_table(("lever", "change", "ratio", "95 %", "basis"), rows)]
    return "\n".join(parts) + "\n"


def trial_note(trial: TrialRecord) -> str:
    """What a trial was, what it gave, why it ended, where its log is."""
    lines = [f"## trial {trial.number}: {trial.state}"]
    marks = [n for n in ("synthetic", "lossy", "simulated") if getattr(trial, f"is_{n}")]
    lines += [f"**{', '.join(marks)}**"] if marks else []
    if trial.value is not None:
        versus = f", **{units.ratio(trial.vs_baseline)} baseline**" if trial.vs_baseline else ""
        lines.append(f"{units.plus_minus(trial.value, trial.half_width)}{versus}")
    if trial.failure or trial.reason:
        lines.append(escape(f"{trial.failure or ''} {trial.reason} {trial.hint}".strip()))
    if trial.prune is not None:
        lines.append(f"stopped after block {trial.prune.after_block} of {trial.prune.blocks}")
    lines += _bullets(f"warning: {text}" for text in trial.warnings)
    settings = {**trial.requested_args.flags, **trial.requested_args.env}
    if settings:
        rows = [(name, "unset" if v is None else str(v)) for name, v in sorted(settings.items())]
        lines += ["", *_table(("setting", "value"), rows)]
    if trial.log_path:
        lines += ["", f"log: {escape(str(Path(trial.log_path)))}"]
    return "\n\n".join(_paragraphs(lines)) + "\n"


def _paragraphs(lines: Iterable[str]) -> list[str]:
    """Lines as paragraphs; list items and table rows stay together."""
    found: list[str] = []
    for line in lines:
        together = line.startswith(("- ", "| ")) and found and found[-1][:2] == line[:2]
        if together:
            found[-1] += f"\n{line}"
        elif line:
            found.append(line)
    return found


def _bullets(lines: Iterable[str]) -> list[str]:
    return [f"- {escape(line)}" for line in lines]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; a cell cannot end its row."""

    def row(cells: Sequence[str]) -> str:
        safe = (escape(cell).replace("|", "&#124;").replace("\n", " ") for cell in cells)
        return f"| {' | '.join(safe)} |"

    return [row(head), f"| {' | '.join('---' for _ in head)} |", *(row(cells) for cells in rows)]


def _chart(title: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with its title; the dashboard gives every chart the same height."""
    layout = {name: value for name, value in document["layout"].items() if name != "height"}
    layout |= {"title": {"text": title}}
    return {"data": document["data"], "layout": layout}
