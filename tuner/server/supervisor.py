"""Owns the life of one server inside a small process of its own, between tuner and server.

    tuner ── control socket ── supervisor (subreaper) ── server (own session) ── workers …

Run as `python -S -P -m tuner.server.supervisor FD`: standard library only, so that it starts in
milliseconds. It exists for four guarantees that a parent cannot give from its own process:

- A tuner that dies, however it dies, leaves no server: the control socket closes and the
  supervisor stops the server. (PR_SET_PDEATHSIG on the server alone would follow the *thread*
  that launched it, not the tuner.) If the supervisor itself is killed, the server gets SIGKILL.
- Every descendant of the server stays a descendant of the supervisor, double-forked and setsid
  ones too (PR_SET_CHILD_SUBREAPER): "nothing left" is `wait` saying that there is no child.
- A chatty server never blocks on a full pipe, and draining it costs the measuring process
  nothing, not even while that process is stopped.
- No core dumps, no inherited signal dispositions, no terminal.

Protocol, one JSON object a line. From the tuner: the request (argv, env, cwd, log,
max_log_bytes, secrets: texts that must not reach the log).
To the tuner: {"started": pid} or {"error": text}, then {"exited": code} (negative: signal).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from tuner.server.blotting import Blotter
from tuner.server.capped_log import CappedLog

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ORPHANED_GRACE_S = 10.0
_POLL_MS = 1000
_DRAIN_BYTES = 1 << 20


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class Supervisor:
    """One server, its log and the socket to the tuner."""

    def __init__(self, control: socket.socket) -> None:
        control.set_inheritable(False)
        self._control = control
        self._tuner = os.getppid()
        self._server = 0
        self._returncode: int | None = None
        self._has_children = False
        self._log_pipe = -1
        self._log: CappedLog | None = None
        self._blotter = Blotter(())

    def run(self) -> int:
        """Start the server and serve it until the tuner lets go and every process is gone."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        wakeup = self._install_signals()
        request = self._read_request()
        if request is None or not self._start(request):
            return 1
        poller = select.poll()
        for descriptor in (self._control.fileno(), wakeup, self._log_pipe):
            poller.register(descriptor, select.POLLIN)
        while not self._is_abandoned(poller, wakeup):
            self._reap()
        self._end_everything()
        return 0

    # ---- starting --------------------------------------------------------------------------
    def _install_signals(self) -> int:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        return reader

    def _read_request(self) -> dict[str, Any] | None:
        data = b""
        while not data.endswith(b"\n"):
            piece = self._control.recv(1 << 16)
            if not piece:
                return None
            data += piece
        request: dict[str, Any] = json.loads(data)
        return request

    def _start(self, request: dict[str, Any]) -> bool:
        self._log = CappedLog(Path(request["log"]), int(request["max_log_bytes"]))
        self._blotter = Blotter(request.get("secrets", ()))
        self._log_pipe, log_end = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(log_end, fcntl.F_SETPIPE_SZ, _DRAIN_BYTES)
        failed, report = os.pipe()  # closes on exec: anything read from it is a failed exec
        self._server = os.fork()
        if self._server == 0:
            os.close(failed)
            _become_server(request, log_end, report)
        os.close(log_end)
        os.close(report)
        error = os.read(failed, 4096).decode(errors="replace")
        os.close(failed)
        os.set_blocking(self._log_pipe, False)
        if error:
            os.waitpid(self._server, 0)
            self._tell({"error": error})
            return False
        self._has_children = True
        self._tell({"started": self._server})
        return True

    # ---- serving ---------------------------------------------------------------------------
    def _is_abandoned(self, poller: select.poll, wakeup: int) -> bool:
        """Wait for the next event; True when the tuner has let go or is dead."""
        for descriptor, event in poller.poll(_POLL_MS):
            if descriptor == wakeup:
                _empty(wakeup)
            elif descriptor == self._log_pipe:
                if not self._drain() and event & select.POLLHUP:
                    poller.unregister(self._log_pipe)
            elif not self._has_tuner():
                return True
        return os.getppid() != self._tuner

    def _has_tuner(self) -> bool:
        try:
            return bool(self._control.recv(4096))
        except OSError:  # reset: the tuner died with a message of ours unread
            return False

    def _drain(self) -> bool:
        """Move what the server has written into the log; False at end of file."""
        assert self._log is not None
        for _ in range(16):  # bounded: a server that floods must not starve the control socket
            try:
                data = os.read(self._log_pipe, _DRAIN_BYTES)
            except BlockingIOError:
                return True
            if not data:
                self._log.write(self._blotter.rest())
                return False
            self._log.write(self._blotter.take(data))
        return True

    def _reap(self) -> None:
        """Collect finished descendants; report the server's own end once its log is complete."""
        while self._has_children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False
                return
            if pid == 0:
                return
            if pid == self._server:
                self._returncode = os.waitstatus_to_exitcode(status)
                self._drain()
                self._tell({"exited": self._returncode})

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(message).encode() + b"\n")

    # ---- ending ----------------------------------------------------------------------------
    def _end_everything(self) -> None:
        """Stop what is left: politely at first, and until no descendant exists."""
        self._signal_descendants(signal.SIGTERM)
        self._signal_descendants(signal.SIGCONT)
        started = time.monotonic()
        while self._has_children:
            self._reap()
            self._drain()
            waited = time.monotonic() - started
            if waited >= _ORPHANED_GRACE_S:
                self._signal_descendants(signal.SIGKILL)
            if self._has_children:
                time.sleep(0.02 if waited < 2 * _ORPHANED_GRACE_S else 1.0)
        if self._log is not None:
            self._drain()
            self._log.write(self._blotter.rest())
            self._log.close()

    def _signal_descendants(self, number: signal.Signals) -> None:
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, number)


def _become_server(request: dict[str, Any], log_end: int, report: int) -> None:
    """In the forked child: own session, clean signals, no core dumps, then exec."""
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        for number in signal.valid_signals():
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(log_end, 1)
        os.dup2(log_end, 2)
        if request["cwd"]:
            os.chdir(request["cwd"])
        argv = request["argv"]
        os.execvpe(argv[0], argv, request["env"])
    except (OSError, ValueError) as error:
        os.write(report, str(error).encode())
    os._exit(127)


def _descendants(root: int) -> list[int]:
    """Pids below `root`, read from /proc; they cannot be reused while the reaper sits here."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                tail = (entry / "stat").read_text(errors="replace").rpartition(")")[2]
                parents.setdefault(int(tail.split()[1]), []).append(int(entry.name))
    found: list[int] = []
    frontier = [root]
    while frontier:
        born = parents.pop(frontier.pop(), [])
        found += born
        frontier += born
    return found


def _empty(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(descriptor, 4096):
            pass


if __name__ == "__main__":
    sys.exit(Supervisor(socket.socket(fileno=int(sys.argv[1]))).run())
