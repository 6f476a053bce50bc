"""Commands that run once: bounded in time and output, nothing of them stays."""

from __future__ import annotations

import sys
import time

import pytest

from tuner.errors import EngineError
from tuner.server import procfs
from tuner.server.command import LaunchCommand
from tuner.server.oneshot import Completed, run_command


def run(program: str, timeout_s: float = 20, **options: object) -> Completed:
    command = LaunchCommand((sys.executable, "-S", "-c", program), {"FOO": "bar"})
    return run_command(command, timeout_s=timeout_s, **options)  # type: ignore[arg-type]


def test_output_code_and_environment() -> None:
    done = run(
        "import os,sys; print(os.environ['FOO']); print('no', file=sys.stderr); sys.exit(3)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "bar\n", "no\n")
    assert not done.timed_out
    assert 0 < done.seconds < 10


def test_standard_input_is_given_or_empty() -> None:
    assert run("print(input())", stdin="hello\n").stdout == "hello\n"
    assert "EOFError" in run("input()").stderr


def test_much_output_on_both_streams_is_cut_not_stuck() -> None:
    program = "import sys\nfor _ in range(50): print('o'*99999); print('e'*99999, file=sys.stderr)"
    done = run(program, max_output_bytes=150_000)
    assert done.returncode == 0
    assert (len(done.stdout), len(done.stderr)) == (150_000, 150_000)


def test_a_signal_is_a_negative_code() -> None:
    assert run("import os; os.abort()").returncode == -6


def test_a_missing_program_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match="/nowhere/x: must be a program") as caught:
        run_command(LaunchCommand(("/nowhere/x",)), timeout_s=1)
    assert "engine.executable" in caught.value.hint


def test_a_timeout_kills_the_command_and_what_it_started() -> None:
    program = (
        "import os,subprocess,sys,time\n"
        "p = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "print(p.pid, flush=True)\ntime.sleep(60)"
    )
    done = run(program, timeout_s=0.5)
    assert done.timed_out
    assert done.returncode == -9
    assert done.seconds < 5
    assert procfs.identify(int(done.stdout)) is None


def test_a_detached_child_neither_delays_nor_survives() -> None:
    program = (
        "import subprocess; p = subprocess.Popen(['sleep', '60'], start_new_session=True);"
        "print(p.pid, flush=True)"
    )
    started = time.monotonic()
    done = run(program)
    assert not done.timed_out
    assert time.monotonic() - started < 5
    assert procfs.identify(int(done.stdout)) is None
