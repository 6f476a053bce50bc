"""Owns what a stopped server may leave in /dev/shm, and which of it may be removed.

A segment is removed only when all of this holds: it did not exist before the launch; it belongs
to our user; no living process that may be inspected holds it; and it was either held by one of
the server's processes or carries a name that inference servers give to theirs.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tuner.server import procfs

SHM = Path("/dev/shm")
KNOWN_PREFIXES = ("sglang_", "psm_", "nccl-", "vllm", "sem.mp-", "torch_", "tuner-fake-")


def segments(folder: Path = SHM) -> frozenset[str]:
    """Names of all segments that exist now."""
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()


def held_by(pids: Iterable[int], folder: Path = SHM) -> frozenset[str]:
    """Names of the segments these processes have open or mapped."""
    by_inode = {inode: name for name in segments(folder) if (inode := _inode(folder / name))}
    return frozenset(n for pid in pids for n in _held_names(pid, f"{folder}/", by_inode))


def remove_leftovers(
    before: frozenset[str],
    held: frozenset[str],
    prefixes: tuple[str, ...] = KNOWN_PREFIXES,
    folder: Path = SHM,
) -> list[str]:
    """Remove the segments a stopped server has left behind; their names.

    Args:
        before: names that existed before the launch; never touched.
        held: names that processes of the server held while it ran.
        prefixes: names of new segments that may go although nobody was seen holding them.
        folder: where the segments are.
    """
    fresh = segments(folder) - before
    candidates = {n for n in fresh if n in held or n.startswith(prefixes)}
    candidates = {name for name in candidates if _is_our_file(folder / name)}
    if candidates:
        candidates -= held_by((s.id.pid for s in procfs.all_processes()), folder)
    for name in candidates:
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    return sorted(candidates)


def _held_names(pid: int, prefix: str, by_inode: Mapping[int, str]) -> Iterator[str]:
    """Names a process holds: by path, and by inode where its path is another one.

    glibc makes a semaphore under a temporary name, maps it, links the final name and removes the
    temporary one: its creator's map reads `/dev/shm/sem.pEJRCB (deleted)` for `sem.mp-e4m6t8pt`.
    """
    for target in procfs.open_files(pid):
        if target.startswith(prefix):
            yield target.removeprefix(prefix)
    with contextlib.suppress(OSError):
        maps = procfs.PROC / str(pid) / "maps"
        for line in maps.read_text(errors="replace").splitlines():
            before, found, name = line.partition(prefix)
            if found:
                yield name
                yield from (by_inode[i] for i in _inodes(before) if i in by_inode)


def _inodes(fields: str) -> Iterator[int]:
    """The inode of a line of /proc/PID/maps, its last field before the path."""
    last = fields.split()[-1:]
    yield from (int(number) for number in last if number.isdecimal())


def _inode(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except OSError:
        return 0


def _is_our_file(path: Path) -> bool:
    try:
        info = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and info.st_uid == os.getuid()
