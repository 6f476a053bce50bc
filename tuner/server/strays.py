"""Owns servers whose tuner died: finding them without doubt, and stopping exactly those.

A process is a stray only when a tuner wrote who owns it (in its environment, or in a launch's
`server.json` with pid and start tick) and that tuner is certainly dead: same boot, same pid
namespace, and no process of that pid and start tick. Servers of a living tuner, of another user,
container or machine, and processes with a terminal are never touched.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.errors import HostError
from tuner.server import procfs
from tuner.server.launch_record import MARKER, OWNER, LaunchRecord, Owner, read_record
from tuner.server.procfs import ProcessId, ProcessStat

_GRACE_S = 12.0  # a supervisor that outlived its tuner gives the server 10 s itself
_FORCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Stray:
    """One left-over server: its processes, and where its launch was recorded (if it was)."""

    marker: str
    owner: Owner
    processes: tuple[ProcessStat, ...]
    record_path: Path | None = None

    def __str__(self) -> str:
        pids = ", ".join(f"{stat.id.pid} ({stat.name})" for stat in self.processes)
        return f"server {self.marker.rpartition(':')[0]} of dead tuner {self.owner.pid}: {pids}"


def find_strays(roots: Iterable[Path]) -> list[Stray]:
    """Servers whose tuner is dead.

    Args:
        roots: results folders whose launch records are read; marked processes are found anyway.
    """
    everything = [stat for stat in procfs.all_processes() if stat.is_alive]
    found = _marked(everything)
    for path, record in _dead_records(roots):
        known = found.get(record.marker)
        members = {s.id: s for s in known.processes} if known else {}
        members |= {stat.id: stat for stat in _recorded(record, everything)}
        if members:
            processes = tuple(sorted(members.values(), key=lambda stat: stat.id))
            found[record.marker] = Stray(record.marker, record.owner, processes, path)
    return list(found.values())


def stop_strays(strays: Sequence[Stray], grace_s: float = _GRACE_S) -> None:
    """Stop these servers: SIGTERM, grace, SIGKILL, verified.

    Raises:
        HostError: a process survived; the machine cannot be used for measuring.
    """
    processes = {stat.id for stray in strays for stat in stray.processes}
    supervisors = _supervisors(strays)
    _signal(processes - supervisors, signal.SIGTERM)
    _signal(processes, signal.SIGCONT)
    if not _all_gone(processes, grace_s):
        _signal(processes, signal.SIGKILL)
        if not _all_gone(processes, _FORCE_S):
            left = sorted(p.pid for p in processes if procfs.is_alive(p))
            raise HostError(
                f"stray servers: every process of a dead tuner's server must end, got {left} "
                f"alive {_FORCE_S:g} s after SIGKILL.",
                "End these processes (state D waits for a driver: reboot), then run again.",
            )
    for stray in strays:
        _note_stopped(stray)


def _marked(everything: Sequence[ProcessStat]) -> dict[str, Stray]:
    """Strays by marker, from the environments of all processes."""
    members: dict[str, list[ProcessStat]] = {}
    owners: dict[str, Owner] = {}
    for stat in everything:
        environ = procfs.read_environ(stat.id.pid) or {}
        owner = Owner.from_env(environ.get(OWNER, ""))
        if MARKER in environ and owner is not None and _is_stray(stat, owner):
            members.setdefault(environ[MARKER], []).append(stat)
            owners[environ[MARKER]] = owner
    return {m: Stray(m, owners[m], tuple(stats)) for m, stats in members.items()}


def _is_stray(stat: ProcessStat, owner: Owner) -> bool:
    return (
        owner.is_dead
        and stat.tty == 0
        and stat.id not in _ourselves()
        and procfs.pid_namespace(stat.id.pid) == owner.pid_namespace
        and _is_our_user(stat.id.pid)
    )


def _ourselves() -> set[ProcessId]:
    """This process and its ancestors, which are never strays whatever they inherited."""
    found = set()
    stat = procfs.read_stat(os.getpid())
    while stat is not None and stat.id not in found:
        found.add(stat.id)
        stat = procfs.read_stat(stat.parent)
    return found


def _is_our_user(pid: int) -> bool:
    try:
        return (procfs.PROC / str(pid)).stat().st_uid == os.getuid()
    except OSError:
        return False


def _dead_records(roots: Iterable[Path]) -> Iterator[tuple[Path, LaunchRecord]]:
    for root in roots:
        for path in sorted(root.rglob("*server.json")) if root.is_dir() else ():
            record = read_record(path)
            if record is not None and not record.stopped and record.owner.is_dead:
                yield path, record


def _recorded(record: LaunchRecord, everything: Sequence[ProcessStat]) -> list[ProcessStat]:
    """The processes a record names that still run, with all their descendants."""
    ids = (
        ProcessId(record.pid, record.start_ticks),
        ProcessId(record.supervisor_pid, record.supervisor_start_ticks),
    )
    roots = [stat for stat in everything if stat.id in ids and _is_stray(stat, record.owner)]
    below = [s for root in roots for s in procfs.family(root.id.pid, everything)]
    return roots + [stat for stat in below if _is_stray(stat, record.owner)]


def _supervisors(strays: Sequence[Stray]) -> set[ProcessId]:
    parents = {stat.parent for stray in strays for stat in stray.processes}
    return {
        stat.id
        for stray in strays
        for stat in stray.processes
        if stat.id.pid in parents and "tuner.server.supervisor" in procfs.read_cmdline(stat.id.pid)
    }


def _signal(processes: Iterable[ProcessId], number: signal.Signals) -> None:
    for process in processes:
        procfs.send_signal(process, number)


def _all_gone(processes: Iterable[ProcessId], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(procfs.is_alive(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _note_stopped(stray: Stray) -> None:
    record = read_record(stray.record_path) if stray.record_path else None
    if record is not None and stray.record_path is not None:
        replace(record, stopped=True).write(stray.record_path)
