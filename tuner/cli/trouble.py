"""Owns `tuner trouble`: the entry of the troubleshooting page that a message belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import typer

from tuner.cli.options import JSON

PAGE = "troubleshooting.md"
_HEADING = re.compile(r"^#{2,3} (.+)$", re.M)
_QUOTE = re.compile(r"\A(?:`[^`]+`[ …,]*)+")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def failure_words(incomplete: str) -> list[str]:
    """The words of failures, for shell completion."""
    from tuner.errors import FailureKind

    return [kind.label for kind in FailureKind if kind.label.startswith(incomplete)]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(trouble)


def trouble(
    about: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help="A failure's word, or words of a warning; all headings when left out.",
            autocompletion=failure_words,
        ),
    ] = "",
    as_json: JSON = False,
) -> None:
    """Say what a failure or warning means and what to do.

    Example: tuner trouble out_of_memory
    """
    from tuner.cli.output import say, say_json
    from tuner.errors import UsageError

    entries = read_entries()
    found = matching(entries, about) if about else entries
    if not found:
        raise UsageError(
            f"TEXT: must be a failure or words of a warning, got {about!r}.",
            "List all with `tuner trouble`.",
        )
    if as_json:
        say_json({"entries": [{"name": name, "text": text} for name, text in found.items()]})
    elif about:
        say(*(line for name, text in found.items() for line in (name, f"  {plain(text)}")))
    else:
        say(*found)


def read_entries() -> dict[str, str]:
    """The entries of the page that comes with the tuner, by heading, in order."""
    from tuner.config.shipped import DOCS, shipped_folder

    page = (shipped_folder(DOCS) / PAGE).read_text(encoding="utf-8")
    marks = list(_HEADING.finditer(page))
    ends = [mark.start() for mark in marks[1:]] + [len(page)]
    texts = {
        mark[1]: page[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)
    }
    return {name: text for name, text in texts.items() if f"### {name}\n" in page}


def matching(entries: Mapping[str, str], about: str) -> dict[str, str]:
    """The entry of this name; else those whose quoted message or heading holds the words, or is
    held by them (a whole warning was pasted)."""
    if about in entries:
        return {about: entries[about]}
    words = about.lower()

    def belongs(name: str, text: str) -> bool:
        quoted = re.findall(r"`([^`]+)`", (_QUOTE.match(text) or [""])[0])
        told = [each.strip().lower() for each in (name, *quoted)]
        return any(words in each or each in words for each in told)

    return {name: text for name, text in entries.items() if belongs(name, text)}


def plain(text: str) -> str:
    """An entry as one line of text: without the quoted message, links as their words."""
    return " ".join(_LINK.sub(r"\1", _QUOTE.sub("", text)).split())
