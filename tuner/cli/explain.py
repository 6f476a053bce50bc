"""Owns the commands that say what a study means: explain and report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import JSON, STUDY


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(explain)
    app.command()(report)


def explain(
    study: STUDY,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="Run the better draft on the real server, synthetically."),
    ] = False,
    rounds: Annotated[
        int, typer.Option(min=2, max=64, help="With --simulate: rounds of three launches each.")
    ] = 4,
    as_json: JSON = False,
) -> None:
    """Say where the time goes and what each lever would give.

    Example: tuner explain kimi-k2.5
    """
    from tuner.cli.explaining import explanation_lines
    from tuner.cli.output import say, say_json, width
    from tuner.insight.leverage import explain as explain_study
    from tuner.store.stored import read_study

    stored = read_study(study)
    found = explain_study(stored)
    if simulate:
        from tuner.cli.simulating import simulated

        found = simulated(study, found, rounds)
    if as_json:
        say_json(found.to_json())
    else:
        say(*explanation_lines(stored, found, width()))


def report(
    study: STUDY,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default: NAME-report.html here.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Write one HTML file that shows a study.

    It opens without a network, and prints.

    Example: tuner report kimi-k2.5 --out report.html
    """
    from tuner.cli.output import say, say_json
    from tuner.cli.reporting import write_report
    from tuner.store.stored import read_study

    path = write_report(read_study(study), out)
    if as_json:
        say_json({"file": str(path)})
    else:
        say(f"Wrote {path}")
