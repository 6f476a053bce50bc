"""Owns the commands about a study file: init, check, schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import JSON, STUDY


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(init)
    app.command()(check)
    app.command()(schema)


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write.")] = Path(),
    engine: Annotated[str, typer.Option(help="sglang, vllm or llamacpp.")] = "",
    model: Annotated[str, typer.Option(help="Path or name of the model.")] = "",
    draft: Annotated[str, typer.Option(help="Path or name of the draft model.")] = "",
    prompts: Annotated[str, typer.Option(help="A file with your traffic.")] = "",
    tp: Annotated[
        int,
        typer.Option(
            help="Tensor-parallel size; default: the GPUs that are here.",
            min=0,
            show_default=False,
        ),
    ] = 0,
    command: Annotated[
        str, typer.Option("--from", help="The command line that starts your server today.")
    ] = "",
    name: Annotated[str, typer.Option(help="The study's name.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Overwrite files.")] = False,
    as_json: JSON = False,
) -> None:
    """Write a commented starter study and its prompts.

    Asks for what is not given when it runs in a terminal; nothing is overwritten.

    Example: tuner init --engine sglang --model /models/big --draft /models/eagle3 --tp 8
    """
    from tuner.cli.asking import complete, is_conversation
    from tuner.cli.init import Wish, write_starter
    from tuner.cli.output import say, say_json
    from tuner.cli.surroundings import look_around

    wish = Wish(folder, engine, model, draft, prompts, tp, name, command, force)
    around = look_around()
    if is_conversation() and not as_json:
        wish = complete(wish, around)
    paths = write_starter(wish, around)
    if as_json:
        say_json({"files": [str(path) for path in paths]})
    else:
        say(*(f"Wrote {path}" for path in paths), f"Next: tuner check {paths[0]}")


def check(study: STUDY, as_json: JSON = False) -> None:
    """Validate a study and count its servers.

    Nothing is launched.

    Example: tuner check studies/quickstart.yaml
    """
    from tuner.cli.check import check_lines, check_study
    from tuner.cli.output import say, say_json
    from tuner.errors import ConfigError
    from tuner.store.stored import study_path

    report = check_study(study_path(study))
    if as_json:
        say_json(report.to_json())
    elif not report.problems:
        say(*check_lines(report))
    if report.problems:
        error = ConfigError(report.problems)
        raise typer.Exit(error.exit_code) if as_json else error


def schema(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="study or space; both when left out.")
    ] = "",
    as_json: JSON = False,
) -> None:
    """Print the JSON Schemas of studies and spaces.

    Example: tuner schema study > study.schema.json
    """
    from tuner.cli.output import say_json
    from tuner.config.schema import space_schema, study_schema
    from tuner.errors import UsageError

    schemas = {"study": study_schema, "space": space_schema}
    if kind and kind not in schemas:
        raise UsageError(f"KIND: must be study or space, got {kind!r}.", "Leave it out for both.")
    say_json(schemas[kind]() if kind else {name: make() for name, make in schemas.items()})
