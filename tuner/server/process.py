"""Owns `ServerProcess`: one launched server, its log, its exit and its verified end.

The server runs under a supervisor (see supervisor.py) in its own session, without a terminal,
with an environment built fresh for this launch. Knows no engine and no HTTP.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from tuner.errors import FailureKind, HostError, TrialFailure
from tuner.server import interrupts, procfs, shared_memory, teardown
from tuner.server.capped_log import read_tail
from tuner.server.command import LaunchCommand
from tuner.server.exits import describe_exit, last_telling_line
from tuner.server.launch_record import LaunchRecord, record_path
from tuner.server.procfs import ProcessId
from tuner.server.teardown import StopReport, Target

MAX_LOG_BYTES = 16 << 20
_START_S = 30.0
_ROOT = str(Path(__file__).parents[2])


def build_env(changes: Mapping[str, str | None]) -> dict[str, str]:
    """A snapshot of our environment with changes applied; None removes a variable."""
    env = dict(os.environ)
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


class ServerProcess:
    """A running server; leaving its context, or losing it, always ends the server.

    Attributes:
        pid: the server's own process.
        port: the port it was told to listen on.
        log_path: its capped log; `server.json` lies beside it.
        marker: value of TUNER_SERVER in every process of the server.
    """

    def __init__(
        self,
        supervisor: subprocess.Popen[bytes],
        control: socket.socket,
        record: LaunchRecord,
        log_path: Path,
        shared_before: frozenset[str] = frozenset(),
    ) -> None:
        self.pid = record.pid
        self.port = record.port
        self.log_path = log_path
        self.marker = record.marker
        self.started_monotonic = time.monotonic()
        self._record = record
        self._shared_before = shared_before
        self._supervisor = supervisor
        self._control = control
        self._events = b""
        self._returncode: int | None = None
        self._report: StopReport | None = None
        self._lock = threading.RLock()
        self._stop_lock = threading.RLock()

    @classmethod
    def launch(
        cls,
        command: LaunchCommand,
        *,
        port: int,
        log_path: Path,
        max_log_bytes: int = MAX_LOG_BYTES,
        label: str = "",
    ) -> ServerProcess:
        """Start a server; returns once its program runs (it is not ready then).

        Args:
            command: program, arguments, environment changes.
            port: the port the command tells the server to use.
            log_path: where standard output and error go.
            max_log_bytes: cap of the log; the middle is dropped.
            label: `study:trial`, the readable part of the marker.

        Raises:
            TrialFailure: LAUNCH_CRASH when the program cannot be executed.
            HostError: no process can be started on this machine.
        """
        record = LaunchRecord.new(label, port, command.argv[0])
        log_path.parent.mkdir(parents=True, exist_ok=True)
        shared_before = shared_memory.segments()
        ours, theirs = socket.socketpair()
        with theirs:
            supervisor = _start_supervisor(theirs.fileno(), record.env, log_path)
        request = {
            "argv": command.argv,
            "env": build_env({**command.env, **record.env}),
            "cwd": command.cwd,
            "log": str(log_path.absolute()),
            "max_log_bytes": max_log_bytes,
        }
        try:
            pid = _handshake(ours, request)
            server = procfs.identify(pid) or ProcessId(pid, 0)
            record = record.started(
                server, procfs.identify(supervisor.pid) or ProcessId(supervisor.pid, 0)
            )
        except BaseException:
            ours.close()  # the supervisor ends whatever it has started
            supervisor.wait(teardown.FORCE_S)
            raise
        record.write(record_path(log_path))
        return cls(supervisor, ours, record, log_path, shared_before)

    # ---- what it is ------------------------------------------------------------------------
    @property
    def base_url(self) -> str:
        """Where its HTTP interface is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def target(self) -> Target:
        """Its processes, as the teardown sees them."""
        record = self._record
        return Target(
            server=ProcessId(record.pid, record.start_ticks),
            supervisor=ProcessId(record.supervisor_pid, record.supervisor_start_ticks),
            marker=record.marker,
            port=record.port,
        )

    def members(self) -> list[procfs.ProcessStat]:
        """Its living processes: the server, its workers, and whatever those have started."""
        return self.target.members()

    def worker_environments(self) -> dict[int, dict[str, str]]:
        """The environment each of its processes was started with, the workers' own included."""
        read = {stat.id.pid: procfs.read_environ(stat.id.pid) for stat in self.members()}
        return {pid: env for pid, env in read.items() if env is not None}

    # ---- how it fares ----------------------------------------------------------------------
    def poll(self) -> int | None:
        """None while the server's own process runs, then its exit code (negative: signal)."""
        with self._lock:
            if self._returncode is None:
                self._read_events()
            return self._returncode

    def exit_reason(self) -> str:
        """How it ended, in words, with the last telling line of its log; "" while it runs."""
        code = self.poll()
        if code is None:
            return ""
        line = last_telling_line(self.log_tail())
        return describe_exit(code) + (f": {line}" if line else "")

    def log_tail(self, max_bytes: int = 65536) -> str:
        """The last part of its log."""
        return read_tail(self.log_path, max_bytes)

    def _read_events(self) -> None:
        while self._returncode is None:
            data = _receive(self._control)
            if data is None:
                return
            if not data:  # the supervisor is gone, and has taken the server with it
                self._returncode = -signal.SIGKILL
                return
            self._events += data
            *lines, self._events = self._events.split(b"\n")
            for line in lines:
                self._returncode = json.loads(line).get("exited", self._returncode)

    # ---- how it ends -----------------------------------------------------------------------
    def stop(self, grace_s: float = 30.0) -> StopReport:
        """End the server and every process it started, and prove it; idempotent.

        Signals that arrive meanwhile wait until it is done.

        Raises:
            TrialFailure: NOT_STOPPED when a process or the port remains.
        """
        with interrupts.deferred(), self._stop_lock:
            if self._report is None:
                self._report = self._stop(grace_s)
            return self._report

    def _stop(self, grace_s: float) -> StopReport:
        supervisor = self.target.supervisor
        procfs.send_signal(supervisor, signal.SIGCONT)
        held = shared_memory.held_by(stat.id.pid for stat in self.members())
        report = teardown.stop(self.target, grace_s)
        self._await_exit_code()
        self._release(supervisor)
        shared_memory.remove_leftovers(self._shared_before, held)
        replace(self._record, stopped=True).write(record_path(self.log_path))
        return report

    def _await_exit_code(self) -> None:
        """Nothing of the server lives any more; its exit code is at most a moment away."""
        deadline = time.monotonic() + 1.0
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)

    def _release(self, supervisor: ProcessId) -> None:
        with self._lock:
            if self._returncode is None:
                self._returncode = -signal.SIGKILL
            self._control.close()
        try:
            self._supervisor.wait(5.0)
        except subprocess.TimeoutExpired:
            procfs.send_signal(supervisor, signal.SIGKILL)
            self._supervisor.wait(5.0)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _start_supervisor(
    control: int, marker: Mapping[str, str], log_path: Path
) -> subprocess.Popen[bytes]:
    # PYTHON* variables of ours are not the supervisor's business; -P keeps the current folder
    # from shadowing the standard library.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        with log_path.open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-S", "-P", "-m", "tuner.server.supervisor", str(control)],
                env={**env, **marker, "PYTHONPATH": _ROOT},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(control,),
                start_new_session=True,
            )
    except OSError as error:
        raise HostError(
            f"launch: a process must be startable, got {error}.",
            "Free memory, process slots (ulimit -u) or disk space on this machine.",
        ) from error


def _handshake(control: socket.socket, request: Mapping[str, Any]) -> int:
    """Send what to start; the server's pid.

    Raises:
        TrialFailure: LAUNCH_CRASH when the program cannot be executed.
        HostError: the supervisor gave no answer.
    """
    control.settimeout(_START_S)
    answer = b""
    try:
        control.sendall(json.dumps(request).encode() + b"\n")
        while not answer.endswith(b"\n") and (data := control.recv(1)):
            answer += data
        message = json.loads(answer)
    except (OSError, ValueError) as error:
        raise HostError(
            f"launch: the supervisor must answer within {_START_S:g} s, got {error!r}.",
            "Look at the end of the server log; the machine may be out of memory.",
        ) from error
    if "started" not in message:
        program = str(request["argv"][0])
        raise TrialFailure(
            FailureKind.LAUNCH_CRASH,
            f"{program} cannot be started: {message.get('error', message)}",
            hint="Set engine.executable to a program that exists and may be executed.",
        )
    control.setblocking(False)
    return int(message["started"])


def _receive(control: socket.socket) -> bytes | None:
    """What has arrived; None when nothing has, b"" when nothing will."""
    try:
        return control.recv(4096)
    except BlockingIOError:
        return None
    except OSError:  # reset: the supervisor was killed
        return b""
