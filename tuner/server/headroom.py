"""Owns what the machine must have free before a server is launched."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from tuner.errors import HostError

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Headroom:
    """Free bytes: host memory, /dev/shm (None: there is none), the disk of the results."""

    memory: int
    shared_memory: int | None
    disk: int


def read_headroom(results: Path, shm: Path = Path("/dev/shm")) -> Headroom:
    """What is free now."""
    return Headroom(
        memory=int(psutil.virtual_memory().available),
        shared_memory=_free(shm) if shm.is_dir() else None,
        disk=_free(results),
    )


def require_headroom(
    results: Path,
    *,
    memory: int = 256 * _MIB,
    shared_memory: int = 64 * _MIB,
    disk: int = 64 * _MIB,
    read: Callable[[Path], Headroom] = read_headroom,
) -> Headroom:
    """Check that a launch can succeed; returns what is free.

    Collective libraries cannot start on a full /dev/shm: every configuration would fail.

    Raises:
        HostError: too little is free of one of them; the numbers are bytes.
    """
    free = read(results)
    if free.shared_memory is not None and free.shared_memory < shared_memory:
        raise _too_little(
            "/dev/shm", shared_memory, free.shared_memory,
            "Remove segments of servers that no longer run from /dev/shm.",
        )  # fmt: skip
    if free.memory < memory:
        raise _too_little("memory", memory, free.memory, "End processes that hold host memory.")
    if free.disk < disk:
        raise _too_little(str(results), disk, free.disk, "Free space on the results' disk.")
    return free


def _too_little(what: str, needed: int, got: int, hint: str) -> HostError:
    return HostError(
        f"{what}: at least {needed // _MIB} MiB must be free before a server is launched, "
        f"got {got // _MIB} MiB.",
        hint,
    )


def _free(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    info = os.statvfs(folder)
    return info.f_bavail * info.f_frsize
