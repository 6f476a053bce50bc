"""Owns `--on-trial`: a user's command that is told of every finished trial."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import asdict

from tuner.cli.output import finite
from tuner.errors import UsageError
from tuner.events import Event, Notice, Observer, TrialFinished

PATIENCE_S = 30.0
"""The next launch waits for the command, so it may not take for ever."""


class TrialHook:
    """An observer that runs a command after every trial, then passes the event on.

    The command gets the trial as one JSON object on its standard input; it is started without a
    shell. Whatever happens to it, the study goes on and a warning is shown.
    """

    def __init__(self, command: str, observer: Observer) -> None:
        self._words = split_command(command)
        self._observer = observer

    def __call__(self, event: Event) -> None:
        """Pass the event on; run the command when a trial has finished."""
        self._observer(event)
        if isinstance(event, TrialFinished):
            trouble = self._run(json.dumps(finite(asdict(event)), ensure_ascii=False))
            if trouble:
                self._observer(Notice("warning", f"--on-trial {self._words[0]}: {trouble}"))

    def _run(self, document: str) -> str:
        try:
            done = subprocess.run(
                self._words,
                input=document.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"must end within {PATIENCE_S:.0f} s, it was ended"
        except OSError as error:
            return f"must be a program that runs, got: {error.strerror}"
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return f"exited with {done.returncode}: {''.join(last)}" if done.returncode else ""


def split_command(command: str) -> list[str]:
    """The words of a command; raises UsageError when its quotes are unbalanced or it is empty."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(
            f"--on-trial: must be a command, got: {error}.", "Close the quotes in it."
        ) from error
    if not words:
        raise UsageError("--on-trial: must be a command, got nothing.", "Name a program.")
    return words
