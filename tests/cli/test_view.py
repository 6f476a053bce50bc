"""How a run is shown: with a clock in front where there is no terminal, live where there is."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime

import pytest

from tuner.cli.progress import Progress
from tuner.cli.view import PlainView, TerminalView, run_view
from tuner.events import Notice, StageChanged, StudyOpened, TrialStarted
from tuner.store.announcing import as_finished
from tuner.store.record import TrialRecord

Golden = Callable[[str, str], None]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def plain(stream: io.StringIO, *, verbose: bool = False) -> PlainView:
    progress = Progress("output_tokens_per_s", lambda: 0.0)
    return PlainView(progress, stream, lambda: datetime(2026, 11, 2, 9, 14, 3), verbose=verbose)


def test_plain_lines_have_a_clock_in_front(trials: list[TrialRecord], golden: Golden) -> None:
    stream = io.StringIO()
    with plain(stream) as view:
        view.recall(trials[:2])
        view(StudyOpened("kimi-k2.5", True, 2, 2, 30, None))
        view(StageChanged(2, "launching"))
        view(as_finished(trials[2]))
    golden("plain", stream.getvalue())


def test_verbose_lines_name_the_stages() -> None:
    stream = io.StringIO()
    view = plain(stream, verbose=True)
    view(StageChanged(2, "warming_up", "until steady"))
    assert stream.getvalue() == "09:14:03  trial 2: warming up, until steady\n"


def test_a_closed_log_does_not_stop_the_study(trials: list[TrialRecord]) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    plain(Broken())(as_finished(trials[1]))


def test_the_terminal_keeps_lines_and_draws_a_region(trials: list[TrialRecord]) -> None:
    stream = Terminal()
    progress = Progress("output_tokens_per_s", lambda: 0.0)
    with TerminalView(progress, stream, width=100) as view:
        view.recall(trials[:1])
        view(StudyOpened("kimi-k2.5", False, 0, 0, 30, None))
        view(TrialStarted(1, {"steps": 3}))
        view(as_finished(trials[1]))
    text = stream.getvalue()
    assert text.count("1  complete       2,574 ±  31    1.35x    2.60    176 ms   3:58") == 1
    assert "study 1/30" in text


def test_without_colour_nothing_is_coloured(
    monkeypatch: pytest.MonkeyPatch, trials: list[TrialRecord]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    progress = Progress("output_tokens_per_s", lambda: 0.0)
    with TerminalView(progress, stream, width=100) as view:
        view(as_finished(trials[3]))
    assert "\x1b[31m" not in stream.getvalue()
    assert "failed" in stream.getvalue()


def test_the_stream_decides() -> None:
    assert isinstance(run_view("output_tokens_per_s", stream=Terminal()), TerminalView)
    assert isinstance(run_view("output_tokens_per_s", stream=io.StringIO()), PlainView)


def test_a_notice_is_folded_not_cut_on_a_narrow_terminal() -> None:
    stream = Terminal()
    view = TerminalView(Progress("output_tokens_per_s", lambda: 0.0), stream, width=50)
    words = "the engine said something long about a flag that nobody had asked it about"
    view(Notice("warning", words, "Remove the flag, or say why it is there, in engine.args."))
    lines = stream.getvalue().split("\n")
    assert "…" not in stream.getvalue()
    assert " ".join(" ".join(lines).split()) == (
        f"warning: {words} Remove the flag, or say why it is there, in engine.args."
    )
    assert all(len(line) <= 50 for line in lines)
