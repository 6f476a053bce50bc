"""Owns the arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def study_names(incomplete: str) -> list[str]:
    """What STUDY may be, for shell completion: names under results/, study files nearby."""
    names = [path.parent.name for path in Path("results").glob("*/study.*")]
    files = [str(path) for folder in (".", "studies") for path in Path(folder).glob("*.yaml")]
    return sorted({name for name in [*names, *files] if name.startswith(incomplete)})


JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]
STUDY = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study file, or the name of one under results/.",
        autocompletion=study_names,
    ),
]
