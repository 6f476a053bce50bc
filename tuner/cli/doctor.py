"""Owns the command `tuner doctor`: checks as lines, their sum, the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import JSON, study_names

if TYPE_CHECKING:
    from tuner.host.checkup import Check

ROOM = 10_000
"""Columns of what is found where nothing is folded: in a file or pipe."""

UNFIT = 3
"""Exit code when a check failed: the host or the engine is at fault."""

MAYBE_STUDY = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study file, or the name of one under results/; only the machine when left out.",
        autocompletion=study_names,
    ),
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(doctor)


def doctor(study: MAYBE_STUDY = "", as_json: JSON = False) -> None:
    """Check machine, engine, draft and database.

    Exits with 3 when something failed. Nothing is launched, stopped or written.

    Example: tuner doctor studies/quickstart.yaml
    """
    from tuner.cli.output import say, say_json, width

    checks = examine(study)
    is_fit = all(check.state != "fail" for check in checks)
    if as_json:
        say_json({"ok": is_fit, "checks": [check.to_json() for check in checks]})
    else:
        say(*doctor_lines(checks, width()))
    if not is_fit:
        raise typer.Exit(UNFIT)


def examine(study: str) -> list[Check]:
    """Every check of the machine and, where one is named, of a study."""
    from tuner.cli import examine as readings
    from tuner.config.loader import load_study
    from tuner.errors import StoreError
    from tuner.host.checkup import Check
    from tuner.store.place import RESULTS
    from tuner.store.stored import study_path

    if not study:
        found = [*readings.machine_checks(), readings.installed_engines()]
        return [*found, readings.stray_servers([RESULTS])]
    try:
        loaded = load_study(study_path(study))
    except StoreError as error:  # a name was given, and its database cannot be read
        broken = Check("database", "fail", error.message, error.hint)
        return [*readings.machine_checks(), broken]
    kind = loaded.config.engine.kind
    return [*readings.machine_checks(kind), *readings.study_checks(loaded)]


def doctor_lines(checks: Sequence[Check], columns: int | None = None) -> list[str]:
    """One line per check, its hint below it where something is to be done; then the sum."""
    from tuner.cli.output import table_lines

    rows: list[tuple[str, str, str]] = []
    for check in checks:
        rows.append((check.state, check.name, check.detail))
        if check.hint and check.state != "ok":
            rows.append(("", "", check.hint))
    room = ROOM if columns is None else max(30, columns - 21)
    lines = table_lines(rows, (4, 13, room))
    warned = sum(check.state == "warn" for check in checks)
    failed = sum(check.state == "fail" for check in checks)
    return [*lines, "", _sum(len(checks), warned, failed)]


def _sum(count: int, warned: int, failed: int) -> str:
    checks = f"{count} check{'' if count == 1 else 's'}"
    if failed:
        return f"{checks}, {failed} failed: a study would not run here."
    if warned:
        return f"{checks}, {warned} to look at; a study can run."
    return f"{checks}, all ok."
