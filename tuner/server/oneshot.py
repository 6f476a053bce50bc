"""Owns commands that run once and end: `--help`, version and resolver commands of engines.

Output and time are bounded, and whatever the command started is gone when it returns.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from tuner.errors import EngineError
from tuner.server import procfs
from tuner.server.command import LaunchCommand
from tuner.server.launch_record import LaunchRecord
from tuner.server.process import build_env
from tuner.server.procfs import ProcessId
from tuner.server.teardown import Target

MAX_OUTPUT_BYTES = 8 << 20
_LINGER_S = 0.2


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command did. `returncode` is negative for a signal; output beyond the cap is cut."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool


def run_command(
    command: LaunchCommand,
    *,
    timeout_s: float,
    stdin: str | None = None,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> Completed:
    """Run a command to its end, or kill all of it when `timeout_s` is over.

    It reads `stdin`, or else what the command itself brings.

    Raises:
        EngineError: the program cannot be started.
    """
    started = time.monotonic()
    record = LaunchRecord.new("command", 0, command.argv[0])
    given = command.stdin if stdin is None else stdin
    with _started(command, record, given) as child:
        reading = _Reading(child, max_output_bytes)
        has_exited = reading.until_exit(started + timeout_s)
    return Completed(
        returncode=child.returncode,
        stdout=reading.text(child.stdout),
        stderr=reading.text(child.stderr),
        seconds=time.monotonic() - started,
        timed_out=not has_exited,
    )


@contextmanager
def _started(
    command: LaunchCommand, record: LaunchRecord, stdin: str | None
) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryFile() as given:
        given.write((stdin or "").encode())
        given.seek(0)
        try:
            child = subprocess.Popen(
                command.argv,
                env=build_env({**command.env, **record.env}),
                cwd=command.cwd,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise EngineError(
                f"{command.argv[0]}: must be a program that can be started, got {_why(error)}.",
                "Set engine.executable to the program or interpreter that has the engine.",
            ) from error
    with child:
        try:
            yield child
        finally:
            _kill_all(child, record.marker)


def _why(error: OSError | ValueError) -> str:
    """`no such file or directory`, without number and a second mention of the name."""
    reason = error.strerror if isinstance(error, OSError) else None
    return (reason or str(error)).lower()


class _Reading:
    """Drains a child's output, keeping the first bytes of each stream."""

    def __init__(self, child: subprocess.Popen[bytes], max_bytes: int) -> None:
        self._child = child
        self._max = max_bytes
        self._kept: dict[int, bytearray] = {}

    def text(self, stream: IO[bytes] | None) -> str:
        """What was kept of a stream."""
        return self._kept.get(id(stream), bytearray()).decode(errors="replace")

    def until_exit(self, deadline: float) -> bool:
        """Read until the command has ended; False when the deadline came first."""
        exit_handle = os.pidfd_open(self._child.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(exit_handle, selectors.EVENT_READ)
                for stream in (self._child.stdout, self._child.stderr):
                    assert stream is not None
                    selector.register(stream, selectors.EVENT_READ, stream)
                return self._read(selector, exit_handle, deadline)
        finally:
            os.close(exit_handle)

    def _read(self, selector: selectors.BaseSelector, exit_handle: int, deadline: float) -> bool:
        has_exited = False
        # A grandchild may hold the pipes open for ever: after the exit, only a moment more.
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            events = selector.select(_LINGER_S if has_exited else left)
            if has_exited and not events:
                break
            for key, _ in events:
                if key.data is None:
                    has_exited = True
                    selector.unregister(exit_handle)
                elif not self._take(key.data):
                    selector.unregister(key.data)
        return has_exited

    def _take(self, stream: IO[bytes]) -> bool:
        data = os.read(stream.fileno(), 1 << 16)
        kept = self._kept.setdefault(id(stream), bytearray())
        kept += data[: max(0, self._max - len(kept))]
        return bool(data)


def _kill_all(child: subprocess.Popen[bytes], marker: str) -> None:
    if child.returncode is None:
        stat = procfs.read_stat(child.pid)
        root = stat.id if stat is not None else ProcessId(child.pid, 0)
        target = Target(server=root, supervisor=ProcessId(0, 0), marker=marker, port=0)
        deadline = time.monotonic() + 5.0
        while (members := target.members()) and time.monotonic() < deadline:
            for member in members:
                procfs.send_signal(member.id, signal.SIGKILL)
            time.sleep(0.002)
