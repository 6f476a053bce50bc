"""Owns the arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]
STUDY = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="A study file, or the name of one under results/."),
]
