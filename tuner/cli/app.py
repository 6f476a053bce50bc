"""Owns the command `tuner`: its groups, their order, and how errors become exit codes.

A group is a module of this package with `register(app)`; it imports nothing heavy at its top,
so that `tuner --help` answers at once.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tuner import __version__
from tuner.cli import (
    deploy,
    doctor,
    draft,
    explain,
    probe,
    record,
    results,
    run,
    study,
    trouble,
    worker,
)
from tuner.cli.output import (
    error_document,
    error_lines,
    narrate,
    open_missing_streams,
    say,
    say_json,
)
from tuner.errors import HostError, TunerError, UsageError

ORDER = (
    "init", "check", "run", "confirm", "show", "compare", "explain", "export", "verify",
    "check-regression", "dashboard", "report", "doctor", "trouble", "draft", "probe",
    "worker", "record", "schema",
)  # fmt: skip
"""The order of `tuner --help`: that of a study's life."""

GROUPS = (study, run, results, explain, deploy, doctor, trouble, draft, probe, worker, record)


MISTAKEN = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC)
"""Errors of the system that a path given by the user explains."""

DEFECT = 70
"""Exit code of an unexpected error (EX_SOFTWARE): 1 means that no server is feasible."""


class Commands(TyperGroup):
    """The root group: lists commands in the order of a study's life, maps errors to exits."""

    _wants_json = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in ORDER, then whatever is not in it."""
        known = [name for name in ORDER if name in self.commands]
        return known + [name for name in super().list_commands(ctx) if name not in ORDER]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember whether the command shall answer with JSON."""
        self._wants_json = "--json" in args
        with self._exits():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an expected error is printed and becomes its exit code."""
        with self._exits():
            return super().invoke(ctx)

    @contextlib.contextmanager
    def _exits(self) -> Iterator[None]:
        try:
            yield
        except (TunerError, OSError) as error:
            told = error if isinstance(error, TunerError) else _of_a_place(error)
            if told is None:
                raise
            narrate(*error_lines(told))
            if self._wants_json:
                say_json(error_document(told))
            raise typer.Exit(told.exit_code) from error
        except KeyboardInterrupt:
            narrate("Interrupted.")
            raise typer.Exit(130) from None


def _of_a_place(error: OSError) -> TunerError | None:
    """A path of the user's that the system refuses; None for any other error: a defect."""
    if error.errno not in (*MISTAKEN, *DENIED) or error.filename is None:
        return None
    kind = UsageError if error.errno in MISTAKEN else HostError
    reason = (error.strerror or "refused").lower()
    return kind(
        f"{str(error.filename)[:200]}: must be a path that can be used, got: {reason}.",
        "Name another path, or change who may use this one.",
    )


def build_app() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        cls=Commands,
        name="tuner",
        help="Find, prove and export the fastest speculative-decoding settings of an LLM server.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for group in GROUPS:
        group.register(app)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"tuner {__version__}")
        raise typer.Exit()


def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_show_version, is_eager=True
    ),
) -> None:
    """Find, prove and export the fastest speculative-decoding settings of an LLM server."""


def _end_of_a_defect(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """An error that no code expected: its traceback, and an exit code of its own."""
    sys.__excepthook__(kind, error, trace)
    narrate("This is a defect of tuner; everything measured so far is stored.")
    os._exit(DEFECT)


def main() -> None:
    """Entry point of the `tuner` command."""
    sys.excepthook = _end_of_a_defect
    open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 still gets its lines
    get_command(build_app())(prog_name="tuner")  # Typer.__call__ would take the hook away
