"""Owns what else the machine was doing while a server was measured: foreign CPU time and steal.

Counters are read at both ends of a window and nothing in between: watching costs the
measurement nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import psutil

_BUSY_SHARE = 0.05  # of the machine's cores
_BUSY_CORES = 0.15
_STEAL_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU seconds since boot: of the machine by kind, of each process by (pid, start)."""

    taken_s: float
    busy_s: float
    steal_s: float
    processes: dict[tuple[int, float], tuple[str, float]]
    cores: int


@dataclass(frozen=True, slots=True)
class ForeignLoad:
    """What others took of the machine in a window.

    Args:
        seconds: length of the window.
        cores: the machine's cores.
        foreign_cores: cores that processes of others kept busy, on average.
        unseen_cores: busy cores of no process that can be seen (other containers, short-lived).
        steal_share: share of all CPU time that the hypervisor gave to other machines.
        busiest: the foreign processes that took most, as (name, pid, cores).
    """

    seconds: float
    cores: int
    foreign_cores: float
    unseen_cores: float
    steal_share: float
    busiest: tuple[tuple[str, int, float], ...] = field(default=())

    def warnings(self) -> list[str]:
        """What makes a measurement doubtful, in words."""
        found = []
        limit = max(_BUSY_CORES, _BUSY_SHARE * self.cores)
        if self.foreign_cores > limit and self.busiest:
            who = ", ".join(f"{name} ({pid}): {used:.1f}" for name, pid, used in self.busiest)
            found.append(f"another process was busy, cores used: {who}")
        if self.unseen_cores > 2 * limit:
            found.append(f"{self.unseen_cores:.1f} cores were busy with processes not seen here")
        if self.steal_share > _STEAL_SHARE:
            found.append(f"the hypervisor took {self.steal_share:.0%} of the CPU time (steal)")
        return found


def read_cpu() -> CpuReading:
    """The counters now."""
    processes: dict[tuple[int, float], tuple[str, float]] = {}
    booted = psutil.boot_time()  # moves with the wall clock, and every create_time with it
    for process in psutil.process_iter(["pid", "name", "create_time", "cpu_times"]):
        used = process.info["cpu_times"]
        if used is not None:
            key = (process.info["pid"], round(process.info["create_time"] - booted, 1))
            processes[key] = (process.info["name"], used.user + used.system)
    total = psutil.cpu_times()
    busy = total.user + total.nice + total.system + total.irq + total.softirq
    return CpuReading(
        time.monotonic(), busy, getattr(total, "steal", 0.0), processes, psutil.cpu_count() or 1
    )


def compare_readings(
    before: CpuReading, after: CpuReading, own_pids: Collection[int]
) -> ForeignLoad:
    """What others took between two readings; `own_pids` are ours and the server's processes."""
    seconds = max(1e-3, after.taken_s - before.taken_s)
    used = [
        (name, pid, max(0.0, cpu_s - before.processes.get((pid, start), ("", 0.0))[1]) / seconds)
        for (pid, start), (name, cpu_s) in after.processes.items()
    ]
    foreign = sorted((x for x in used if x[1] not in own_pids), key=lambda x: -x[2])
    busy = max(0.0, after.busy_s - before.busy_s) / seconds
    steal = max(0.0, after.steal_s - before.steal_s) / seconds
    return ForeignLoad(
        seconds=seconds,
        cores=after.cores,
        foreign_cores=sum(cores for _, _, cores in foreign),
        unseen_cores=max(0.0, busy - sum(cores for _, _, cores in used)),
        steal_share=steal / after.cores,
        busiest=tuple(x for x in foreign[:3] if x[2] >= 0.02),
    )


class LoadWatch:
    """Foreign load over the time its context is open.

    Args:
        own_pids: pids that are not foreign (ours is added); asked at both ends, because a server
            starts and ends processes.
        read: reads the counters.
    """

    def __init__(
        self,
        own_pids: Callable[[], Collection[int]] = frozenset,
        read: Callable[[], CpuReading] = read_cpu,
    ) -> None:
        self._own_pids = own_pids
        self._read = read
        self._own = {os.getpid()}
        self.load: ForeignLoad | None = None

    def __enter__(self) -> LoadWatch:
        self._own |= set(self._own_pids())
        self._before = self._read()
        return self

    def __exit__(self, *error: object) -> None:
        after = self._read()
        self._own |= set(self._own_pids())
        self.load = compare_readings(self._before, after, self._own)

    def warnings(self) -> list[str]:
        """What makes the measurement doubtful; [] while the context is open."""
        return self.load.warnings() if self.load is not None else []
