"""Owns the run lock: one tuner per results folder, and who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from tuner.errors import HostError
from tuner.store.files import file_errors
from tuner.store.owner import Owner, current_owner


@contextlib.contextmanager
def run_lock(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock for the life of the block; the kernel frees it when the process dies.

    Args:
        path: the lock file; it stays behind, holding its last owner.
        shared: several workers of one shared database may hold it together.

    Raises:
        HostError: another process holds it; the message names that process.
        StoreError: the lock file cannot be written.
    """
    with file_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _acquire(handle, path, shared)
        if not shared:
            _sign(handle, path)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, path: Path, shared: bool) -> None:
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = lock_owner(path)
        who = owner.label if owner else "another process"
        raise HostError(
            f"{path.parent}: must be used by one tuner at a time, got: {who} is running it.",
            "Wait for it to finish, or stop it; then run again to resume.",
        ) from error


def _sign(handle: int, path: Path) -> None:
    text = json.dumps(current_owner(os.getpid()).to_json()).encode()
    with file_errors(path):
        os.ftruncate(handle, 0)
        os.pwrite(handle, text, 0)
        os.fsync(handle)


def lock_owner(path: Path) -> Owner | None:
    """Who signed the lock file last (it may have ended since); None when unknown."""
    try:
        return Owner.from_json(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None
