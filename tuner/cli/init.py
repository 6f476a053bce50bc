"""Owns `tuner init`: where the starter study and its prompts go; nothing is overwritten."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.cli.dimensions import scalar
from tuner.cli.migration import starter_from
from tuner.cli.output import json_text
from tuner.cli.starter import ENGINES, SCHEMA, Starter, default_starter, render_study
from tuner.cli.surroundings import Surroundings, look_around
from tuner.errors import StoreError, UsageError

STUDY = "study.yaml"
PROMPTS = "prompts.jsonl"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user said on the command line; empty where nothing was said."""

    folder: Path
    engine: str = ""
    model: str = ""
    draft: str = ""
    prompts: str = ""
    tp: int = 0
    name: str = ""
    command: str = ""
    force: bool = False


def write_starter(wish: Wish, around: Surroundings | None = None) -> list[Path]:
    """Write study.yaml, its schema for editors and, unless prompts were named, prompts.jsonl.

    Args:
        wish: what the user said.
        around: this machine's engines and GPUs; None: they are looked for.

    Returns:
        The paths written, the study first.

    Raises:
        UsageError: an unknown engine, a file in the way, a command line that is no server's.
    """
    starter = _starter(wish, around or look_around())
    files = {STUDY: render_study(starter, str(wish.folder / STUDY))}
    if not wish.prompts:
        files[PROMPTS] = _builtin_prompts()
    files[SCHEMA] = _schema()
    for name in files:
        path = wish.folder / name
        if path.exists() and not wish.force:
            raise UsageError(
                f"{path}: must not exist, got a file.", "Choose another folder, or add --force."
            )
    try:
        wish.folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (wish.folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"{wish.folder}: must be writable, got: {error.strerror}.", "Choose another folder."
        ) from error
    return [wish.folder / name for name in files]


def _starter(wish: Wish, around: Surroundings) -> Starter:
    if wish.engine and wish.engine not in ENGINES:
        raise UsageError(
            f"--engine: must be {', '.join(ENGINES[:-1])} or {ENGINES[-1]}, got {wish.engine!r}.",
            "Name the program that serves your model.",
        )
    if wish.command:
        starter = starter_from(wish.command)
    else:
        engine = wish.engine or around.engine
        starter = default_starter(engine, wish.model, wish.draft, wish.tp or around.tp)
    prompts = f"{{file: {scalar(wish.prompts or PROMPTS)}}}"
    return replace(
        starter,
        name=wish.name or _name(starter),
        prompts=prompts,
        include=around.spaces_for(starter.engine, starter.args),
    )


def _name(starter: Starter) -> str:
    """A study name from the model's: letters, digits, dots and dashes."""
    model = Path(starter.model).name.removesuffix(".gguf").lower()
    text = re.sub(r"[^a-z0-9._-]+", "-", f"{model}-{starter.engine}").strip("-._")
    return text[:100] or f"study-{starter.engine}"


def _schema() -> str:
    from tuner.config.schema import study_schema

    return json_text(study_schema()) + "\n"


def _builtin_prompts() -> str:
    from tuner.measure.prompts import BUILTIN

    return BUILTIN.read_text(encoding="utf-8")
