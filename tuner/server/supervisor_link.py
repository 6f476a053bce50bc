"""Owns the tuner's end of a supervisor (see supervisor.py): starting it, its news, its release."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import FailureKind, HostError, TrialFailure
from tuner.server import procfs
from tuner.server.procfs import ProcessId

_ANSWER_S = 30.0
_RELEASE_S = 15.0  # the supervisor itself waits 10 s before it kills
_ROOT = str(Path(__file__).parents[2])


class SupervisorLink:
    """A started supervisor and the server it runs.

    Closing the link, or losing it, ends the server; that is the supervisor's promise.

    Attributes:
        process: the supervisor. server: the server's own process.
    """

    def __init__(
        self, supervisor: subprocess.Popen[bytes], control: socket.socket, server_pid: int
    ) -> None:
        self.process = procfs.identify(supervisor.pid) or ProcessId(supervisor.pid, 0)
        self.server = procfs.identify(server_pid) or ProcessId(server_pid, 0)
        self._supervisor = supervisor
        self._control = control
        self._unread = b""
        self._returncode: int | None = None
        self._lock = threading.RLock()

    @classmethod
    def start(
        cls, request: Mapping[str, Any], marker: Mapping[str, str], log_path: Path
    ) -> SupervisorLink:
        """Start a supervisor and have it start a server.

        Args:
            request: what to run (see supervisor.py).
            marker: environment of the supervisor beside ours.
            log_path: where it complains if it cannot even begin.

        Raises:
            TrialFailure: LAUNCH_CRASH when the program cannot be executed.
            HostError: no process can be started on this machine.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            supervisor = _start(theirs.fileno(), marker, log_path)
        try:
            return cls(supervisor, ours, _handshake(ours, request))
        except BaseException:
            ours.close()  # the supervisor ends whatever it has started
            supervisor.wait(_RELEASE_S)
            raise

    def returncode(self) -> int | None:
        """None while the server's own process runs, then its exit code (negative: signal)."""
        with self._lock:
            while self._returncode is None:
                data = _receive(self._control)
                if data is None:
                    break
                self._take(data)
            return self._returncode

    def release(self) -> None:
        """Let the supervisor go; it ends by itself once nothing of the server is left."""
        with self._lock:
            if self._returncode is None:
                self._returncode = -signal.SIGKILL
            self._control.close()
        try:
            self._supervisor.wait(_RELEASE_S)
        except subprocess.TimeoutExpired:
            procfs.send_signal(self.process, signal.SIGKILL)
            self._supervisor.wait(_RELEASE_S)

    def _take(self, data: bytes) -> None:
        if not data:  # the supervisor is gone, and has taken the server with it
            self._returncode = -signal.SIGKILL
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._returncode = json.loads(line).get("exited", self._returncode)


def _start(control: int, marker: Mapping[str, str], log_path: Path) -> subprocess.Popen[bytes]:
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
    """Send what to start; the server's pid."""
    control.settimeout(_ANSWER_S)
    answer = b""
    try:
        control.sendall(json.dumps(request).encode() + b"\n")
        while not answer.endswith(b"\n") and (data := control.recv(1)):
            answer += data
        message = json.loads(answer)
    except (OSError, ValueError) as error:
        raise HostError(
            f"launch: the supervisor must answer within {_ANSWER_S:g} s, got {error!r}.",
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
