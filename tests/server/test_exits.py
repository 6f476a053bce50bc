"""An exit and the end of a log, in one line of words."""

from __future__ import annotations

import pytest

from tuner.server.exits import (
    describe_exit,
    last_error_lines,
    last_telling_line,
    names_address_in_use,
    plain_lines,
)

TRACEBACK = """\
INFO: loading
Traceback (most recent call last):
  File "server.py", line 3, in <module>
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
[rank0] process group has NOT been destroyed
"""


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exited with code 0"),
        (137, "exited with code 137"),
        (-6, "killed by SIGABRT"),
        (-9, "killed by SIGKILL"),
        (-200, "killed by signal 200"),
    ],
)
def test_codes(code: int, text: str) -> None:
    assert describe_exit(code) == text


def test_the_end_of_a_traceback_wins_over_the_farewell() -> None:
    assert last_telling_line(TRACEBACK).startswith("torch.OutOfMemoryError: CUDA out of memory")


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", ""),
        ("all is well\n", "all is well"),
        (
            "error: unknown argument: --draft-max\nusage: …\n",
            "error: unknown argument: --draft-max",
        ),
        ("\x1b[31mERROR\x1b[0m bad\nbye", "ERROR bad"),
        ("AssertionError\n", "AssertionError"),
        ("build_info: b0-unknown\nmodel loaded\n", "model loaded"),
    ],
)
def test_the_telling_line(log: str, line: str) -> None:
    assert last_telling_line(log) == line


def test_progress_bars_and_empty_lines_are_no_lines() -> None:
    assert plain_lines("a\n\n 10%\r 20%\r100%\n\r\nb\r\n") == ["a", "100%", "b"]


def test_error_lines_come_in_order_and_are_cut() -> None:
    log = "error one\nfine\nfatal two\n" + "failed " + "x" * 1000
    lines = last_error_lines(log, 2)
    assert lines[0] == "fatal two"
    assert len(lines[1]) == 300


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("[Errno 98] error while attempting to bind: address already in use", True),
        ("RuntimeError: EADDRINUSE: tcp://127.0.0.1:29500", True),
        ("couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", True),
        ("The server socket has failed to listen on any local network address.", True),
        ("failed to bind texture", False),
        ("CUDA out of memory", False),
        ("address already in use\n" + "later\n" * 60, False),
    ],
)
def test_address_in_use(log: str, expected: bool) -> None:
    assert names_address_in_use(log) is expected
