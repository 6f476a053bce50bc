"""Owns how a run is shown: a live region on a terminal, plain lines with a clock elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from tuner.cli.output import fold
from tuner.cli.progress import Progress
from tuner.events import Event, StageChanged
from tuner.store.record import TrialRecord

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.text import Text

REFRESH_PER_S = 2


class RunView(Protocol):
    """An observer of a run that also shows earlier trials; entered around the run."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def __call__(self, event: Event) -> None:
        """Show one event."""
        ...

    def recall(self, records: Iterable[TrialRecord]) -> None:
        """Show the trials of an earlier run."""
        ...


def run_view(metric: str, *, verbose: bool = False, stream: TextIO | None = None) -> RunView:
    """The view that suits the stream (stderr): live on a terminal, plain lines elsewhere."""
    target = stream or sys.stderr
    progress = Progress(metric, time.monotonic)
    if target.isatty():
        return TerminalView(progress, target)
    return PlainView(progress, target, datetime.now, verbose=verbose)


class PlainView:
    """Lines with the time of day in front, for logs and pipes; stages too when verbose."""

    def __init__(
        self,
        progress: Progress,
        stream: TextIO,
        now: Callable[[], datetime],
        *,
        verbose: bool = False,
    ) -> None:
        self._progress = progress
        self._stream = stream
        self._now = now
        self._verbose = verbose

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def __call__(self, event: Event) -> None:
        """Write what the event adds."""
        self._write(self._progress.take(event))
        if self._verbose and isinstance(event, StageChanged):
            detail = f", {event.detail}" if event.detail else ""
            self._write([f"trial {event.number}: {event.stage.replace('_', ' ')}{detail}"])

    def recall(self, records: Iterable[TrialRecord]) -> None:
        """Write the lines of earlier trials."""
        self._write(self._progress.recall(records, None))

    def _write(self, lines: list[str]) -> None:
        stamp = f"{self._now():%H:%M:%S}"
        try:
            for line in lines:
                self._stream.write(f"{stamp}  {line}\n")
            self._stream.flush()
        except OSError:
            return  # whoever read the log has gone; the study goes on


class TerminalView:
    """Permanent lines above a live region of at most four."""

    def __init__(self, progress: Progress, stream: TextIO, *, width: int | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._progress = progress
        self._console: Console = Console(
            file=stream, highlight=False, markup=False, emoji=False, width=width
        )
        self._live = Live(
            console=self._console,
            get_renderable=self._region,
            refresh_per_second=REFRESH_PER_S,
            transient=True,
        )

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Print what stays; the region refreshes itself."""
        self._print(self._progress.take(event, self._console.width))

    def recall(self, records: Iterable[TrialRecord]) -> None:
        """Print the lines of earlier trials."""
        self._print(self._progress.recall(records, self._console.width))

    def _print(self, lines: list[str]) -> None:
        with contextlib.suppress(OSError):  # the terminal was closed; the study goes on
            self._show(lines)

    def _show(self, lines: list[str]) -> None:
        if lines:
            self._live.refresh()  # rich draws the last region again below what is printed
        for line in lines:
            for part in fold(line, self._console.width):
                self._console.print(_text(part))

    def _region(self) -> Group:
        from rich.console import Group

        return Group(*(_text(line) for line in self._progress.live(self._console.width)))


def _text(line: str) -> Text:
    from rich.text import Text

    return Text(line, no_wrap=True, overflow="ellipsis", style=_style(line))


def _style(line: str) -> str:
    """Colour by the state word; rich drops it where NO_COLOR or the terminal says so."""
    word = line[6:20].split(" ")[0] if line[:6].strip() else ""
    return {"state": "bold", "failed": "red", "pruned": "dim", "infeasible": "dim"}.get(word, "")
