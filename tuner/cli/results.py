"""Owns the commands that read a stored study: show, compare, dashboard."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from tuner.cli.options import JSON, STUDY, trial_numbers


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(show)
    app.command()(compare)
    app.command()(dashboard)


def show(
    study: STUDY,
    trial: Annotated[
        int | None,
        typer.Argument(metavar="TRIAL", help="One trial in full.", autocompletion=trial_numbers),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Show a study's trials, or one trial in full.

    Example: tuner show quickstart 5
    """
    from tuner.cli.output import say, say_json, width
    from tuner.cli.show import study_document, study_lines, trial_lines
    from tuner.store.stored import read_study

    found = read_study(study)
    record = None if trial is None else found.trial(trial)
    if as_json:
        say_json(study_document(found, record))
    elif record is None:
        say(*study_lines(found, width()))
    else:
        say(*trial_lines(found, record))


def compare(
    study: STUDY,
    a: Annotated[
        int,
        typer.Argument(
            metavar="TRIAL", help="A trial; 0 is the baseline.", autocompletion=trial_numbers
        ),
    ],
    b: Annotated[
        int,
        typer.Argument(
            metavar="OTHER", help="The trial it is compared with.", autocompletion=trial_numbers
        ),
    ],
    as_json: JSON = False,
) -> None:
    """Compare two trials: a ratio with its interval.

    Example: tuner compare quickstart 5 0
    """
    from tuner.cli.compare import compare_trials, comparison_document, comparison_lines
    from tuner.cli.output import say, say_json
    from tuner.store.stored import read_study

    found = read_study(study)
    comparison = compare_trials(found, a, b)
    if as_json:
        say_json(comparison_document(found, comparison))
    else:
        say(*comparison_lines(found, comparison))


def dashboard(
    study: STUDY,
    port: Annotated[int | None, typer.Option(help="Default: 8080, or any free port.")] = None,
    as_json: JSON = False,
) -> None:
    """Serve optuna-dashboard on a study, read-only.

    On this machine only, until Ctrl-C.

    Example: tuner dashboard quickstart
    """
    from tuner.cli.output import narrate, say, say_json
    from tuner.store.artifacts import files_of
    from tuner.store.dashboard import dashboard as open_dashboard
    from tuner.store.stored import find_study, newest_name

    place, _ = find_study(study)
    opened = open_dashboard(place.url, newest_name(place), port, files_of(place))
    with opened as found, contextlib.suppress(KeyboardInterrupt):
        if as_json:
            say_json({"url": found.url})
        else:
            say(found.url)
        narrate("Read-only, on this machine only; Ctrl-C ends it.")
        found.serve()
