"""Owns the arguments that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer


def study_names(incomplete: str) -> list[str]:
    """What STUDY may be, for shell completion: names under results/, study files nearby."""
    names = [path.parent.name for path in Path("results").glob("*/study.*")]
    files = [str(path) for folder in (".", "studies") for path in Path(folder).glob("*.yaml")]
    return sorted({name for name in [*names, *files] if name.startswith(incomplete)})


def trial_numbers(context: typer.Context, incomplete: str) -> list[str]:
    """What TRIAL may be, for shell completion: the stored trials of the STUDY typed before."""
    study = str(context.params.get("study") or "")
    path = Path(study)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        named = re.search(r"^name:\s*(\S+)", path.read_text(errors="replace"), re.M)
        study = named[1].strip("\"'") if named else ""
    folders = (Path("results") / study / "trials").glob("[0-9]*") if study else []
    numbers = sorted(int(folder.name) for folder in folders if folder.name.isdigit())
    return [str(number) for number in numbers if str(number).startswith(incomplete)]


JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]
STUDY = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study file, or the name of one under results/.",
        autocompletion=study_names,
    ),
]
