"""Owns launches as tasks of a Ray cluster: sent, followed, cancelled; a lost worker is told.

The controller is the only one that knows the study; a task measures one server on its node and
streams everything back (see `remote`). Every node must be equal: each task compares first.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.config.engine import EngineConfig
from tuner.errors import FailureKind, HostError, Interrupted, TrialFailure
from tuner.events import StageChanged
from tuner.host.fingerprint import Fingerprint, Subject, compare, take
from tuner.search.bench import Bench, LaunchPlan, ServerRun, StopEarly
from tuner.search.placement import VISIBLE, Seat
from tuner.search.ray_cluster import POLL_S, Cluster
from tuner.search.remote import Ended, Files, Job, WireError, drive, portable, serve
from tuner.search.seat_worker import WorkerChannel, runner_of
from tuner.server.interrupts import deferred, raise_on_signals

CANCEL_S = 75.0
"""A cancelled task stops its server first: 30 s of grace, then force."""

FIRST_S = 300.0
"""Until a node has hashed the models: they may lie on a slow disk."""

READ_S = 0.5

_CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a node must be equal to, and how it finds out."""

    subject: Subject
    fingerprint: Fingerprint


def node_fingerprint(cluster: Cluster, subject: Subject) -> Fingerprint:
    """What the study's nodes are; raises HostError when none can be asked."""
    found = cluster.call(fingerprint_here, subject, timeout_s=FIRST_S)
    assert isinstance(found, Fingerprint)
    return found


class TaskChannel:
    """The controller's end of a task: two queues, and whether the task still lives."""

    def __init__(self, cluster: Cluster, queues: tuple[Any, Any], expected: Expected) -> None:
        self._cluster = cluster
        self._out, self._back = queues
        self.task = cluster.submit(measure, *queues, expected)

    def send(self, message: Any) -> None:
        """Hand a message over."""
        self._out.put(message)

    def receive(self) -> Any:
        """The next message; raises EOFError when the task has gone."""
        while True:
            was_over = self._cluster.is_over(self.task)
            message = self._cluster.taken(self._back, POLL_S)
            if message is not None:
                return message
            if was_over:
                raise EOFError

    def cancel(self) -> None:
        """Ask the task to stop its server and end; returns at once."""
        self._out.put(_CANCEL)

    def wait(self) -> bool:
        """Wait until the task has ended; False when it takes too long."""
        return bool(self._cluster.ray.wait([self.task], timeout=CANCEL_S)[0])

    def abandon(self) -> None:
        """End a task that was not followed to its end, and its queues with it."""
        with deferred():
            self.cancel()
            self.wait()
            self._cluster.ray.cancel(self.task, force=True)
            self._out.shutdown(force=True)
            self._back.shutdown(force=True)


class RayRunner:
    """Runs launches on the nodes of a cluster; `run` may be called by several threads."""

    is_simulated = False

    def __init__(self, cluster: Cluster, engine: EngineConfig, expected: Expected) -> None:
        self.is_simulated = engine.kind == "fake"
        self.seats = cluster.execution.parallel
        self._cluster, self._engine, self._expected = cluster, engine, expected
        self._lock = threading.Lock()
        self._running: set[TaskChannel] = set()
        self._queues: list[tuple[Any, Any]] = []  # of tasks that ended in order: empty again
        self._is_cancelled = False

    def run(self, bench: Bench, plan: LaunchPlan, run: ServerRun, stop_early: StopEarly) -> None:
        """Measure the planned server on a free node; it is stopped on every way out."""
        if self._is_cancelled:
            raise Interrupted("interrupted before it was launched.")
        bench.observer(StageChanged(plan.number, "preparing", "waiting for a Ray node"))
        job = Job(portable(bench), self._engine, plan, run)
        try:
            with self._channel() as channel:
                try:
                    drive(channel, job, bench, run, stop_early)
                except EOFError:
                    raise self._lost(channel) from None
        except Interrupted as error:
            if self._is_cancelled or isinstance(error, KeyboardInterrupt):
                raise
            raise TrialFailure(FailureKind.INTERRUPTED, f"its task was {error.message}") from None

    @contextlib.contextmanager
    def _channel(self) -> Iterator[TaskChannel]:
        with self._lock:
            queues = self._queues.pop() if self._queues else None
        queues = queues or (self._cluster.queue(), self._cluster.queue())
        channel = TaskChannel(self._cluster, queues, self._expected)
        with self._lock:
            self._running.add(channel)
        try:
            yield channel
        except BaseException as error:
            if is_ordered_end(error):
                self._give_back(channel, queues)
            else:
                channel.abandon()
            raise
        else:
            self._give_back(channel, queues)
        finally:
            with self._lock:
                self._running.discard(channel)

    def _give_back(self, channel: TaskChannel, queues: tuple[Any, Any]) -> None:
        if channel.wait():  # until it has ended, the task would take another one's messages
            with self._lock:
                self._queues.append(queues)

    def cancel(self) -> None:
        """Have every running launch end as interrupted; returns at once."""
        self._is_cancelled = True
        with self._lock:
            for channel in self._running:
                channel.cancel()

    def _lost(self, channel: TaskChannel) -> Exception:
        if self._is_cancelled:
            return Interrupted("interrupted by the user.")
        why = self._cluster.why_lost(channel.task)
        return TrialFailure(FailureKind.INTERRUPTED, f"the Ray worker was lost: {why}")


def is_ordered_end(error: BaseException) -> bool:
    """True for what a task said itself: its queues are empty and can be used again."""
    if isinstance(error, TrialFailure):
        return error.kind is not FailureKind.INTERRUPTED
    return isinstance(error, HostError)


# ---- on a node ------------------------------------------------------------------------------
def fingerprint_here(subject: Subject) -> Fingerprint:
    """The node's fingerprint without what Ray sets for one task: its GPUs, its threads."""
    os.environ.pop("OMP_NUM_THREADS", None)  # Ray's 1 would slow the server, too
    environ = {name: value for name, value in os.environ.items() if name != VISIBLE}
    return take(subject, environ=environ)


def measure(inbox: Any, outbox: Any, expected: Expected) -> None:
    """The task: measure one server here, with the GPUs that Ray gave this process."""
    import ray
    import ray.util.queue

    def read() -> Any:
        try:
            message = inbox.get(timeout=READ_S)
        except ray.util.queue.Empty:
            return None
        except ray.exceptions.RayError as error:
            raise EOFError from error  # the controller has gone
        if message == _CANCEL:
            raise EOFError
        return message

    seat = Seat(0, tuple(str(gpu) for gpu in ray.get_gpu_ids()))
    with raise_on_signals(), contextlib.suppress(Interrupted, EOFError):
        channel = WorkerChannel(read, outbox.put)
        try:
            _measure_here(channel, expected, seat)
        finally:
            channel.close()


def _measure_here(channel: WorkerChannel, expected: Expected, seat: Seat) -> None:
    job = channel.receive()
    found = compare(expected.fingerprint, fingerprint_here(expected.subject))
    if found:
        lines = "; ".join(f"{d.field}: {d.stored} there, {d.present} here" for d in found)
        error = HostError(f"every Ray node must be equal, got one that differs: {lines}.",
                          "Remove that node, or give equal ones their own cluster.")  # fmt: skip
        channel.send(Ended(job.run, WireError.of(error)))
        return
    with tempfile.TemporaryDirectory(prefix="tuner-") as name:
        there = replace(job, plan=replace(job.plan, folder=Path(name)))
        is_simulated = job.engine.kind == "fake"
        with_files = WithFiles(channel.send, channel.receive, Path(name))
        serve(with_files, there, runner_of(seat, is_simulated=is_simulated))


@dataclass(frozen=True, slots=True)
class WithFiles:
    """A channel that hands the launch's files over before it says that the launch has ended."""

    write: Callable[[Any], None]
    receive: Callable[[], Any]
    folder: Path

    def send(self, message: Any) -> None:
        """Hand a message over."""
        if isinstance(message, Ended):
            paths = [path for path in self.folder.iterdir() if path.is_file()]
            self.write(Files({path.name: path.read_bytes() for path in paths}))
        self.write(message)
