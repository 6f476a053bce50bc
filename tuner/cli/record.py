"""Owns the command `tuner record`: a study's launches become a landscape that can be replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import JSON, STUDY


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(record)


def record(
    study: STUDY,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to; default: NAME.landscape.json.")
    ] = None,
    note: Annotated[str, typer.Option(help="Where the numbers come from, for people.")] = "",
    as_json: JSON = False,
) -> None:
    """Write what a study measured, to be replayed.

    A study with `engine: {kind: replay}` searches it without launching anything.

    Example: tuner record quickstart --out quickstart.json
    """
    from tuner.cli.output import say, say_json
    from tuner.measure.landscape import landscape_text
    from tuner.search.identity import space_from_json
    from tuner.search.landscape import landscape_of
    from tuner.store.files import write_atomic
    from tuner.store.stored import read_study

    found = read_study(study)
    parameters = space_from_json(found.document["space"]).parameters
    landscape = landscape_of(found.name, found.trials, note=note, parameters=parameters)
    path = out or Path(f"{found.name}.landscape.json")
    write_atomic(path, landscape_text(landscape).encode())
    launches = sum(len(server.launches) for server in landscape.servers)
    counts = {"servers": len(landscape.servers), "launches": launches}
    if as_json:
        say_json({"file": str(path), "origin": landscape.origin, **counts})
    else:
        say(
            f"{path}: {counts['servers']} servers, {launches} launches, {landscape.origin}.",
            f"Replay it with engine: {{kind: replay, landscape: {path}}}",
        )
