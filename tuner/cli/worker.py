"""Owns the command that lends this machine to a study on a shared database: worker."""

from __future__ import annotations

import typer

from tuner.cli.options import STUDY
from tuner.cli.run import VERBOSE


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(worker)


def worker(study: STUDY, verbose: VERBOSE = False) -> None:
    """Be one more worker of a study on a shared PostgreSQL.

    It ends with the search.

    Every machine must be equal: engine, models, GPUs and driver are compared first.

    Example: tuner worker studies/shared.yaml
    """
    from tuner.cli.output import say
    from tuner.cli.running import ending_lines, join_shown
    from tuner.store.stored import read_study

    if join_shown(study, verbose=verbose):
        say(*ending_lines(read_study(study)))
    else:
        say("The search has ended; another worker confirms.", f"Next: tuner show {study}")
