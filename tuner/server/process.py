"""Owns `ServerProcess`: one launched server, its log, its exit and its verified end.

The server runs under a supervisor (see supervisor.py) in its own session, without a terminal,
with an environment built fresh for this launch. Knows no engine and no HTTP.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from tuner.redaction import secret_values
from tuner.server import interrupts, procfs, shared_memory, teardown
from tuner.server.capped_log import read_tail
from tuner.server.command import LaunchCommand
from tuner.server.exits import describe_exit, last_telling_line
from tuner.server.launch_record import LaunchRecord, record_path
from tuner.server.supervisor_link import SupervisorLink
from tuner.server.teardown import StopReport, Target

MAX_LOG_BYTES = 16 << 20
_EXIT_CODE_S = 1.0


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
        started_monotonic: when it was launched (`time.monotonic`).
    """

    def __init__(
        self,
        link: SupervisorLink,
        record: LaunchRecord,
        log_path: Path,
        shared_before: frozenset[str] = frozenset(),
    ) -> None:
        self.pid = record.pid
        self.port = record.port
        self.log_path = log_path
        self.marker = record.marker
        self.started_monotonic = time.monotonic()
        self.target = Target(link.server, link.process, record.marker, record.port)
        self._link = link
        self._record = record
        self._shared_before = shared_before
        self._oom_kills_before = procfs.count_oom_kills()
        self._report: StopReport | None = None
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
        if log_path.is_symlink():  # never write through a link that somebody left here
            log_path.unlink()
        shared_before = shared_memory.segments()
        env = build_env({**command.env, **record.env})
        request = {
            "argv": command.argv,
            "env": env,
            "secrets": secret_values(env),
            "cwd": command.cwd,
            "log": str(log_path.absolute()),
            "max_log_bytes": max_log_bytes,
        }
        link = SupervisorLink.start(request, record.env, log_path)
        record = record.started(link.server, link.process)
        record.write(record_path(log_path))
        return cls(link, record, log_path, shared_before)

    # ---- what it is ------------------------------------------------------------------------
    @property
    def base_url(self) -> str:
        """Where its HTTP interface is."""
        return f"http://127.0.0.1:{self.port}"

    def members(self) -> list[procfs.ProcessStat]:
        """Its living processes: the server, its workers, and whatever those have started."""
        return self.target.members()

    def environments(self) -> dict[int, dict[str, str]]:
        """The environment each of its processes was started with, the workers' own included."""
        read = {stat.id.pid: procfs.read_environ(stat.id.pid) for stat in self.members()}
        return {pid: env for pid, env in read.items() if env is not None}

    # ---- how it fares ----------------------------------------------------------------------
    def poll(self) -> int | None:
        """None while the server's own process runs, then its exit code (negative: signal)."""
        return self._link.returncode()

    def wait(self, seconds: float) -> int | None:
        """The exit code as soon as there is one, None after `seconds` without."""
        deadline = time.monotonic() + seconds
        while (code := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return code

    @property
    def is_oom_killed(self) -> bool:
        """True when it got SIGKILL while the kernel was killing for lack of memory."""
        has_killed = procfs.count_oom_kills() > self._oom_kills_before
        return has_killed and self.poll() == -signal.SIGKILL

    def exit_reason(self) -> str:
        """How it ended, in words, with the last telling line of its log; "" while it runs."""
        code = self.poll()
        if code is None:
            return ""
        line = last_telling_line(self.log_tail())
        memory = " (the kernel ran out of memory)" if self.is_oom_killed else ""
        return describe_exit(code) + memory + (f": {line}" if line else "")

    def log_tail(self, max_bytes: int = 65536) -> str:
        """The last part of its log."""
        return read_tail(self.log_path, max_bytes)

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
        procfs.send_signal(self.target.supervisor, signal.SIGCONT)
        held = shared_memory.held_by(stat.id.pid for stat in self.members())
        report = teardown.stop(self.target, grace_s)
        self.wait(_EXIT_CODE_S)  # nothing of it lives any more: the code is a moment away
        self._link.release()
        # What a living server held is known; one that died before could not be asked.
        prefixes = shared_memory.KNOWN_PREFIXES if report.how == "exited" else ()
        shared_memory.remove_leftovers(self._shared_before, held, prefixes)
        replace(self._record, stopped=True).write(record_path(self.log_path))
        return report

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
