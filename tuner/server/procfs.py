"""Owns how processes are seen through /proc: identity, family, environment, sockets.

A process is identified by its pid *and* its start tick (field 22 of /proc/PID/stat): the tick
counts from boot and, unlike a wall-clock create time, does not move when the clock is set.
Knows nothing of servers.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """A process that cannot be confused with a later one of the same pid."""

    pid: int
    start_ticks: int

    def __str__(self) -> str:
        return f"{self.pid}@{self.start_ticks}"


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One reading of /proc/PID/stat. `cpu_s` is user + system time, `tty` 0 without terminal."""

    id: ProcessId
    name: str
    state: str
    parent: int
    group: int
    session: int
    tty: int
    cpu_s: float
    rss_bytes: int

    @property
    def is_alive(self) -> bool:
        """False for a zombie: it holds nothing but its exit status."""
        return self.state not in "ZX"


def read_stat(pid: int) -> ProcessStat | None:
    """The process with this pid, or None when there is none."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if len(fields) < 22:
        return None
    numbers = [int(fields[index]) for index in (1, 2, 3, 4, 11, 12, 19, 21)]
    parent, group, session, tty, user, system, start, pages = numbers
    return ProcessStat(
        id=ProcessId(pid, start),
        name=head.partition("(")[2],
        state=fields[0],
        parent=parent,
        group=group,
        session=session,
        tty=tty,
        cpu_s=(user + system) / _TICKS_PER_S,
        rss_bytes=pages * _PAGE,
    )


def identify(pid: int) -> ProcessId | None:
    """The identity of the living process with this pid."""
    stat = read_stat(pid)
    return stat.id if stat is not None and stat.is_alive else None


def is_alive(process: ProcessId) -> bool:
    """True while exactly this process runs (a zombie does not run)."""
    return identify(process.pid) == process


def all_processes() -> Iterator[ProcessStat]:
    """Every process of the machine (of this pid namespace), zombies included."""
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (stat := read_stat(int(entry.name))) is not None:
            yield stat


def family(root: int, processes: Iterable[ProcessStat]) -> list[ProcessStat]:
    """Descendants of `root` among `processes`, parents before children, without `root`."""
    children: dict[int, list[ProcessStat]] = {}
    for stat in processes:
        children.setdefault(stat.parent, []).append(stat)
    found: list[ProcessStat] = []
    frontier = [root]
    while frontier:
        born = children.pop(frontier.pop(0), [])
        found += born
        frontier += [stat.id.pid for stat in born]
    return found


def read_environ(pid: int) -> dict[str, str] | None:
    """The environment the process was started with; None when it may not be read."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def read_cmdline(pid: int) -> str:
    """The command line, arguments joined by spaces; "" when there is none to read."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def socket_inodes(pid: int) -> set[str]:
    """Inodes of the sockets the process holds; empty when its descriptors may not be read."""
    targets = open_files(pid)
    return {target[8:-1] for target in targets if target.startswith("socket:[")}


def open_files(pid: int) -> list[str]:
    """What each descriptor of a process refers to: a path, `socket:[inode]`, `pipe:[inode]`."""
    found = []
    with contextlib.suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(str(entry.readlink()))
    return found


def boot_id() -> str:
    """The kernel's random id of this boot; "" where the kernel has none."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def count_oom_kills() -> int:
    """How many processes the kernel has killed for lack of memory since boot; 0: not told."""
    try:
        lines = (PROC / "vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def pid_namespace(pid: int | str = "self") -> str:
    """The pid namespace a process lives in; "" when it may not be read."""
    try:
        return str((PROC / str(pid) / "ns/pid").readlink())
    except OSError:
        return ""


def send_signal(process: ProcessId, number: signal.Signals) -> bool:
    """Signal exactly this process; False when it no longer exists or may not be signalled.

    A pidfd pins the process before its identity is compared, so a reused pid is never hit.
    """
    if process.pid <= 1 or process.pid == os.getpid():
        return False
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
