"""Owns the four questions of `tuner init`: engine, model, draft, traffic; only in a terminal."""

from __future__ import annotations

import sys
from dataclasses import replace

import typer

from tuner.cli.init import Wish
from tuner.cli.starter import ENGINES
from tuner.cli.surroundings import Surroundings


def is_conversation() -> bool:
    """True when a person can answer: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def complete(wish: Wish, around: Surroundings) -> Wish:
    """The wish with what it lacks, asked for; a command line says everything itself."""
    if wish.command or wish.model:
        return wish
    engine = wish.engine or _ask(f"Engine ({', '.join(ENGINES)})", around.engine)
    model = _ask("Model (path or name)", "")
    draft = wish.draft or _ask("Draft model (path or name; empty for n-gram lookup)", "")
    prompts = wish.prompts or _ask("File with your own prompts (empty for the built-in ones)", "")
    return replace(wish, engine=engine, model=model, draft=draft, prompts=prompts)


def _ask(question: str, default: str) -> str:
    answer = typer.prompt(question, default=default, show_default=bool(default), err=True)
    return str(answer).strip()
