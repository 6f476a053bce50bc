"""Owns the commands that say what a study means: explain and report."""

from __future__ import annotations

import typer

from tuner.cli.options import JSON, STUDY


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(explain)


def explain(
    study: STUDY,
    as_json: JSON = False,
) -> None:
    """Say where the time goes, what each lever would give, and which is the largest.

    Example: tuner explain kimi-k2.5
    """
    from tuner.cli.explaining import explanation_lines
    from tuner.cli.output import say, say_json, width
    from tuner.insight.leverage import explain as explain_study
    from tuner.store.stored import read_study

    stored = read_study(study)
    found = explain_study(stored)
    if as_json:
        say_json(found.to_json())
    else:
        say(*explanation_lines(stored, found, width()))
