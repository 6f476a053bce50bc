"""Owns the identity of a process that owns something (a run, a trial, a lease) and whether it
still lives; knows no database.

A pid alone is reused, a start time read from the wall clock jumps with it: an owner is host, boot,
pid namespace, pid and the kernel's own start tick.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import psutil

Liveness = Literal["alive", "dead", "unknown"]


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, identified so that neither pid reuse nor a clock jump confuses it with another.

    Args:
        host: host name.
        pid: process id, within its namespace.
        boot_id: the kernel's id of this boot; "" where there is none.
        proc_start: start of the process, in clock ticks since boot (elsewhere: Unix seconds).
        pid_namespace: the namespace `pid` belongs to; "" where there is none.
    """

    host: str
    pid: int
    boot_id: str
    proc_start: str
    pid_namespace: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Owner:
        """Inverse of `to_json`; raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            host=str(data["host"]),
            pid=int(data["pid"]),
            boot_id=str(data["boot_id"]),
            proc_start=str(data["proc_start"]),
            pid_namespace=str(data.get("pid_namespace", "")),
        )

    @property
    def label(self) -> str:
        """Short text for messages: `pid 4711 on gpu-3`."""
        return f"pid {self.pid} on {self.host}"

    def liveness(self) -> Liveness:
        """Whether the process lives; `unknown` when this machine cannot tell."""
        here = current_owner(os.getpid())
        if self.boot_id != here.boot_id:
            return "dead" if self.host == here.host else "unknown"
        if self.pid_namespace != here.pid_namespace:
            return "unknown"
        return "alive" if process_start(self.pid) == self.proc_start else "dead"


def process_start(pid: int) -> str | None:
    """When a process started, as text that no clock change alters; None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return _psutil_start(pid) if not Path("/proc/self/stat").exists() else None
    except (ProcessLookupError, PermissionError):
        return None
    # The command name may hold spaces and parentheses: fields are counted after the last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


def _psutil_start(pid: int) -> str | None:
    try:
        return f"{psutil.Process(pid).create_time():.0f}"
    except psutil.Error:
        return None


@lru_cache(maxsize=4)
def current_owner(pid: int | None = None) -> Owner:
    """This process. Pass `os.getpid()` where a fork may have happened since the last call."""
    own = os.getpid() if pid is None else pid
    return Owner(
        host=socket.gethostname(),
        pid=own,
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        proc_start=process_start(own) or "",
        pid_namespace=_namespace(),
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
