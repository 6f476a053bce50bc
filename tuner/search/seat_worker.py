"""Owns the process that measures the servers of one seat: `python -m tuner.search.seat_worker FD`.

It restricts itself to the seat's CPUs and devices, which its servers inherit, then does one job
after the other. It ends, with its server, when the controller closes the connection or dies.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tuner.errors import Interrupted
from tuner.host.gpus import GpuReading, GpuSource, open_nvml
from tuner.search.local_runner import LocalRunner
from tuner.search.placement import Seat
from tuner.search.remote import Job, serve
from tuner.server import procfs
from tuner.server.interrupts import raise_on_signals

_CLOSED = object()


class WorkerChannel:
    """The worker's end, read by a thread of its own so that the controller's end is noticed.

    Args:
        read: the next message, or None when there is none yet; raises EOFError or OSError when
            the controller has gone.
        write: hands a message over; raises OSError when the controller has gone.
    """

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        self._next, self._write = read, write
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="channel", daemon=True)
        self._thread.start()

    def send(self, message: Any) -> None:
        """Hand a message over; to a controller that has gone, nothing is said."""
        with contextlib.suppress(OSError):
            self._write(message)

    def receive(self) -> Any:
        """The next message; raises EOFError when the controller has gone."""
        message = self._inbox.get()
        if message is _CLOSED:
            raise EOFError
        return message

    def close(self) -> None:
        """Read no more: this process may go on to serve another controller."""
        self._is_closed.set()
        self._thread.join()

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while not self._is_closed.is_set():
                message = self._next()
                if message is not None:
                    self._inbox.put(message)
        self._inbox.put(_CLOSED)
        if not self._is_closed.is_set():
            os.kill(os.getpid(), signal.SIGTERM)  # the main thread may be measuring


def take_seat(seat: Seat) -> None:
    """Restrict this process, and what it starts, to the seat."""
    if seat.cpus:
        os.sched_setaffinity(0, seat.cpus)
    os.environ.update(seat.environment())


@dataclass(frozen=True, slots=True)
class SeatGpus:
    """The GPUs of one seat: what neighbours hold on theirs is none of its business."""

    source: GpuSource
    devices: frozenset[str]

    def read(self) -> list[GpuReading]:
        """One reading of each of them."""
        return [each for each in self.source.read() if str(each.index) in self.devices]


def runner_of(seat: Seat, *, is_simulated: bool) -> LocalRunner:
    """The runner that measures on a seat."""
    nvml = open_nvml() if seat.devices else None
    gpus = SeatGpus(nvml, frozenset(seat.devices)) if nvml is not None else None
    return LocalRunner(gpus=gpus, neighbours=neighbours, is_simulated=is_simulated)


def neighbours() -> set[int]:
    """Every process the controller has started: the other seats and their servers."""
    everything = procfs.all_processes()
    return {stat.id.pid for stat in procfs.family(os.getppid(), everything)} | {os.getppid()}


def main(descriptor: int) -> int:
    """Serve one seat until the controller has gone."""
    with raise_on_signals() as interrupts, contextlib.suppress(Interrupted, EOFError):
        connection = Connection(descriptor)
        channel = WorkerChannel(connection.recv, connection.send)
        seat = channel.receive()
        take_seat(seat)
        while not interrupts.received:
            job = channel.receive()
            assert isinstance(job, Job)
            serve(channel, job, runner_of(seat, is_simulated=job.engine.kind == "fake"))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
