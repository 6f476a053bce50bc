"""Owns the commands that launch servers: run, confirm."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.options import JSON, STUDY, trial_numbers

NEW = Annotated[
    bool, typer.Option("--new", help="Start afresh beside what is stored under this name.")
]
VERBOSE = Annotated[
    bool, typer.Option("--verbose", "-v", help="Without a terminal: a line for every stage too.")
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(run)
    app.command()(confirm)


def run(
    study: STUDY,
    new: NEW = False,
    on_trial: Annotated[
        str,
        typer.Option(
            metavar="CMD",
            help="Run a command after every trial, its event as JSON on standard input.",
        ),
    ] = "",
    verbose: VERBOSE = False,
    as_json: JSON = False,
) -> None:
    """Run a study: baseline, search, confirmation. Run again, it resumes.

    Example: tuner run studies/quickstart.yaml
    """
    from tuner.cli.output import say, say_json
    from tuner.cli.running import documented, ending_lines, run_shown
    from tuner.cli.show import study_document

    with documented(study, as_json):
        done = run_shown(study, new=new, verbose=verbose, on_trial=on_trial)
    if as_json:
        say_json(study_document(done))
    else:
        say(*ending_lines(done))


def confirm(
    study: STUDY,
    trials: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="TRIAL",
            help="Trials to confirm; the best when left out.",
            autocompletion=trial_numbers,
        ),
    ] = None,
    schedule: Annotated[
        bool,
        typer.Option("--schedule", help="Confirm a depth for each load, and the table of them."),
    ] = False,
    verbose: VERBOSE = False,
    as_json: JSON = False,
) -> None:
    """Launch the best and the baseline again, alternating.

    On held-out prompts, which the search never saw.

    Example: tuner confirm quickstart 5 17
    """
    from tuner.cli.output import say, say_json
    from tuner.cli.running import confirm_shown, documented, ending_lines, schedule_shown
    from tuner.cli.show import study_document

    with documented(study, as_json):
        if schedule:
            done = schedule_shown(study, tuple(trials or ()), verbose=verbose)
        else:
            done = confirm_shown(study, tuple(trials or ()), verbose=verbose)
    if as_json:
        say_json(study_document(done))
    else:
        say(*ending_lines(done))
