"""Owns the commands about what is deployed: export, verify, check-regression."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import JSON, STUDY, trial_numbers


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(export)
    app.command()(verify)
    app.command("check-regression")(check_regression)


TARGETS = Annotated[
    list[str] | None,
    typer.Option(
        "--for",
        help="Further files: compose, kubernetes, systemd; schedule: the table of depths "
        "by load instead of a single server.",
    ),
]
RUNNING = Annotated[
    str,
    typer.Option(
        metavar="OLD",
        help="Write nothing; show what changes against a running server: its command line, "
        "script, YAML, JSON or bundle.",
    ),
]


def export(
    study: STUDY,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to; default: results/NAME/deploy.")
    ] = None,
    targets: TARGETS = None,
    trial: Annotated[
        int | None,
        typer.Option(help="Another trial than the recommended.", autocompletion=trial_numbers),
    ] = None,
    unconfirmed: Annotated[
        bool, typer.Option("--unconfirmed", help="Export a trial that was not confirmed.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Export although it is: synthetic, simulated, unfaithful."),
    ] = None,
    nodes: Annotated[
        int,
        typer.Option(min=1, help="kubernetes: spread it over nodes with a LeaderWorkerSet."),
    ] = 1,
    diff: RUNNING = "",
    as_json: JSON = False,
) -> None:
    """Write the recommended server as files that start it.

    Example: tuner export quickstart --out deploy --for compose,systemd
    """
    from tuner.cli.diff import diff_lines
    from tuner.cli.export import ExportWish, diff_study, export_study
    from tuner.cli.output import say, say_json

    if diff:
        found = diff_study(study, trial, diff)
        if as_json:
            say_json(found.to_json())
        else:
            say(*diff_lines(found))
        return
    wish = ExportWish(
        study, out, tuple(targets or ()), trial, unconfirmed, tuple(allow or ()), nodes
    )
    done = export_study(wish)
    files = [str(path) for path in done.files]
    if as_json:
        say_json({"files": files, "flags": list(done.subject.flags)})
    else:
        say(*files, f"Start it with {done.folder / 'launch.sh'}")


BUNDLE = Annotated[Path, typer.Argument(metavar="DIR", help="An exported bundle.")]
ROUNDS = Annotated[
    int | None,
    typer.Option(min=1, help="Launches of each server; default 1, beside a baseline 2."),
]


def verify(
    folder: BUNDLE,
    baseline: Annotated[
        bool,
        typer.Option(
            "--baseline", help="Judge against a baseline measured here, as on another machine."
        ),
    ] = False,
    rounds: ROUNDS = None,
    as_json: JSON = False,
) -> None:
    """Launch what was exported and compare it with its record.

    Exit code 1: it is not what was measured. 4: measured on another machine; see --baseline.

    Example: tuner verify results/quickstart/deploy
    """
    from tuner.cli.output import say, say_json
    from tuner.cli.verify import FAILED, VerifyWish, verify_bundle, verify_lines

    report = verify_bundle(VerifyWish(folder, baseline, rounds))
    if as_json:
        say_json(report.to_json())
    else:
        say(*verify_lines(report))
    if not report.ok:
        raise typer.Exit(FAILED)


def check_regression(
    folder: BUNDLE,
    against: Annotated[
        str,
        typer.Option(
            metavar="STUDY", help="Hold it against this study's best; default: its own gain."
        ),
    ] = "",
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=50.0, help="Percent it may be slower.")
    ] = 3.0,
    rounds: Annotated[int, typer.Option(min=2, help="Launches of each server.")] = 4,
    as_json: JSON = False,
) -> None:
    """Fail when what is deployed is no longer near the best.

    Near: within 3 %, or --tolerance.

    For scheduled jobs, after an upgrade: exit code 1 means that tuning anew pays.

    Example: tuner check-regression deploy/production --against kimi-k2.5-eagle3-8xpcie
    """
    from tuner.cli.output import say, say_json
    from tuner.cli.regression import RegressionWish, regression_lines
    from tuner.cli.regression import check_regression as check
    from tuner.cli.verify import FAILED

    report = check(RegressionWish(folder, against, tolerance / 100, rounds))
    if as_json:
        say_json(report.to_json())
    else:
        say(*regression_lines(report))
    if not report.ok:
        raise typer.Exit(FAILED)
