"""Owns where words go: results and JSON to stdout, narration and errors to stderr."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TextIO

import typer

from tuner.errors import ConfigError, HostError, Problem, StudyMismatch, TunerError

READER_GONE = 141
"""Exit code when whoever read the results closed the pipe: that of any program (SIGPIPE)."""


def say(*lines: str) -> None:
    """Results: lines on stdout, folded between words where a terminal shows them.

    Raises:
        HostError: stdout cannot be written.
    """
    _deliver(_folded(sys.stdout, lines))


def narrate(*lines: str) -> None:
    """Narration: lines on stderr, which nobody parses; where nobody listens it is dropped."""
    with contextlib.suppress(OSError):
        _write(sys.stderr, _folded(sys.stderr, lines))


def say_json(document: Mapping[str, Any]) -> None:
    """The one JSON document of a `--json` call; NaN and infinity become null.

    Raises:
        HostError: stdout cannot be written.
    """
    _deliver([json_text(document)])


def open_missing_streams() -> None:
    """Standard streams that were closed lead to nowhere, not into the next file opened."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def json_text(document: Mapping[str, Any]) -> str:
    """A document as the text of a JSON file, without its last line break."""
    return json.dumps(finite(document), indent=2, ensure_ascii=False, allow_nan=False)


def width() -> int | None:
    """Columns of the terminal that shows results; None when they go to a file or pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fold(line: str, width: int | None) -> list[str]:
    """The line in as many lines as fit the width, broken between words, the further ones
    indented by two more; paths and long words are never broken."""
    if width is None or len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line,
        max(width, 40),
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def table_lines(
    rows: Sequence[Sequence[str]], widths: Sequence[int], *, breaks_words: bool = False
) -> list[str]:
    """Rows whose cells are folded within their column; a word longer than it only if told."""
    lines = []
    for row in rows:
        cells = [
            textwrap.wrap(cell, room, break_long_words=breaks_words, break_on_hyphens=False)
            or [""]
            for cell, room in zip(row, widths, strict=True)
        ]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            padded = (part.ljust(room) for part, room in zip(parts, widths, strict=True))
            lines.append("  ".join(padded).rstrip())
    return lines


def finite(value: Any) -> Any:
    """The value with every float that JSON cannot hold replaced by None."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return None
    return value


def error_lines(error: TunerError) -> list[str]:
    """An error as users read it: every problem of a file, else the message; hints indented."""
    lines: list[str] = []
    if isinstance(error, ConfigError):
        lines += [line for problem in error.problems for line in str(problem).splitlines()]
    lines += error.message.splitlines()
    return [*lines, *_indented(error.hint.splitlines())]


def error_document(error: TunerError) -> dict[str, Any]:
    """An error as the document of a `--json` call: every problem with its place."""
    problems = error.problems if isinstance(error, ConfigError) else ()
    differences = error.differences if isinstance(error, StudyMismatch) else ()
    return {
        "ok": False,
        "exit_code": error.exit_code,
        "message": error.message,
        "hint": error.hint,
        "errors": [problem_document(problem) for problem in problems]
        or [{"message": error.message, "hint": error.hint}],
        "differences": [asdict(difference) for difference in differences],
    }


def problem_document(problem: Problem) -> dict[str, Any]:
    """One mistake in a file, as JSON shows it."""
    return asdict(problem)


def _deliver(lines: Iterable[str]) -> None:
    try:
        _write(sys.stdout, lines)
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):  # what is buffered must not fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(READER_GONE) from error
        raise HostError(
            f"standard output: must be writable, got: {error.strerror}.",
            "Direct it elsewhere; what was measured is stored (`tuner show`).",
        ) from error


def _write(stream: TextIO, lines: Iterable[str]) -> None:
    for line in lines:
        stream.write(f"{line}\n")
    stream.flush()


def _folded(stream: TextIO, lines: Iterable[str]) -> list[str]:
    columns = shutil.get_terminal_size().columns if stream.isatty() else None
    return [part for line in lines for part in fold(line, columns)]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
