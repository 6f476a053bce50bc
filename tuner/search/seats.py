"""Owns servers side by side on this machine: one measuring process per seat, and their end.

Each seat has a process of its own (see `seat_worker`): several load generators in one process
would slow one another down, and a process can be pinned to the seat's CPUs with its server.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tuner.config.engine import EngineConfig
from tuner.errors import FailureKind, HostError, Interrupted, TrialFailure
from tuner.measure.records import LoadPoint
from tuner.search.bench import Bench, LaunchPlan, ServerRun, StopEarly
from tuner.search.placement import Seat
from tuner.search.remote import Job, drive, portable
from tuner.server.exits import describe_exit
from tuner.server.interrupts import deferred
from tuner.server.strays import find_strays, stop_strays

_STOP_S = 75.0
"""A worker stops its server first: 30 s of grace, then force, then the port."""

_ROOT = str(Path(__file__).parents[2])


class SeatProcess:
    """The measuring process of one seat, started when first needed and again after it died."""

    def __init__(self, seat: Seat, log_path: Path) -> None:
        self.seat = seat
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def send(self, message: Any) -> None:
        """Hand a message over; raises EOFError when the process has gone."""
        try:
            self._opened().send(message)
        except OSError as error:
            raise EOFError from error

    def receive(self) -> Any:
        """The next message; raises EOFError when the process has gone."""
        try:
            return self._opened().recv()
        except OSError as error:
            raise EOFError from error

    def interrupt(self) -> None:
        """Ask the process to stop its server and end; returns at once."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)

    def end(self) -> int:
        """End the process with its server and wait for it; its exit code. Idempotent."""
        process, connection = self._process, self._connection
        self._process, self._connection = None, None
        if process is None or connection is None:
            return 0
        with deferred():
            connection.close()
            try:
                return process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()  # its supervisor ends the server
                return process.wait()

    def _opened(self) -> Connection:
        if self._connection is None:
            self._process, self._connection = _start(self.log_path)
            self._connection.send(self.seat)
        return self._connection


def _start(log_path: Path) -> tuple[subprocess.Popen[bytes], Connection]:
    ours, theirs = socket.socketpair()
    with theirs, log_path.open("ab") as log:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "tuner.search.seat_worker", str(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": _python_path()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is the controller's; it decides who ends
            )
        except OSError as error:
            ours.close()
            raise HostError(
                f"execution.parallel: a measuring process must be startable, got {error}.",
                "Free memory or process slots (ulimit -u), or lower execution.parallel.",
            ) from error
    return process, Connection(ours.detach())


def _python_path() -> str:
    inherited = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([_ROOT, *([inherited] if inherited else [])])


class SeatRunner:
    """Runs launches on the seats of this machine; `run` may be called by as many threads."""

    def __init__(self, engine: EngineConfig, seats: Sequence[Seat], folder: Path) -> None:
        self.is_simulated = engine.kind == "fake"
        self._engine = engine
        self._processes = [SeatProcess(s, folder / f"seat-{s.number}.log") for s in seats]
        self._free: queue.SimpleQueue[SeatProcess] = queue.SimpleQueue()
        for process in reversed(self._processes):
            self._free.put(process)
        self._lock = threading.Lock()
        self._busy = 0
        self._is_cancelled = False

    @property
    def seats(self) -> int:
        """How many servers may run at the same time."""
        return len(self._processes)

    def run(self, bench: Bench, plan: LaunchPlan, run: ServerRun, stop_early: StopEarly) -> None:
        """Measure the planned server on the next free seat; it is stopped on every way out."""
        process = self._free.get()
        crowd: list[int] = []

        def judged(state: ServerRun, load: LoadPoint) -> bool:
            crowd.append(self._busy)
            return stop_early(state, load)

        self._count(1)
        try:
            self._run_on(process, bench, plan, run, judged)
        finally:
            self._count(-1)
            self._free.put(process)
        run.warnings += crowding_note(crowd, self.seats)

    def cancel(self) -> None:
        """Have every running launch end as interrupted; returns at once."""
        self._is_cancelled = True
        for process in self._processes:
            process.interrupt()

    def close(self) -> None:
        """End every measuring process."""
        for process in self._processes:
            process.interrupt()
        for process in self._processes:
            process.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _count(self, change: int) -> None:
        with self._lock:
            self._busy += change

    def _run_on(
        self,
        process: SeatProcess,
        bench: Bench,
        plan: LaunchPlan,
        run: ServerRun,
        stop_early: StopEarly,
    ) -> None:
        if self._is_cancelled:
            raise Interrupted("interrupted before it was launched.")
        plan = replace(plan, folder=plan.folder.absolute())
        job = Job(portable(bench), self._engine, plan, run)
        try:
            drive(process, job, bench, run, stop_early)
        except EOFError:
            raise self._gone(process, plan) from None
        except Interrupted as error:
            process.end()
            if self._is_cancelled or isinstance(error, KeyboardInterrupt):
                raise
            raise TrialFailure(
                FailureKind.INTERRUPTED, f"its measuring process: {error}"
            ) from None
        except KeyboardInterrupt:
            process.end()
            raise

    def _gone(self, process: SeatProcess, plan: LaunchPlan) -> Exception:
        """What the end of a measuring process means; its server is gone afterwards."""
        code = process.end()
        stop_strays(find_strays([plan.folder]))
        if self._is_cancelled:
            return Interrupted("interrupted by the user.")
        kind = FailureKind.INTERRUPTED if code < 0 else FailureKind.UNEXPECTED
        reason = f"the process that measured it ended: {describe_exit(code)}"
        return TrialFailure(kind, reason, hint=f"Read {process.log_path}.")


def crowding_note(busy: Sequence[int], seats: int) -> list[str]:
    """A warning for a trial that mostly had fewer neighbours than the baseline had."""
    less = [count for count in busy if count < seats]
    if 2 * len(less) <= len(busy):
        return []
    return [f"measured beside {min(less) - 1} other servers, the baseline beside {seats - 1}"]
