"""Segments in /dev/shm: who holds them, and that another program's are never removed."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tuner.server.shared_memory import SHM, held_by, remove_leftovers, segments

pytestmark = pytest.mark.skipif(not SHM.is_dir(), reason="no /dev/shm on this machine")
HOLDER = """
import multiprocessing, sys
lock = multiprocessing.get_context("spawn").Lock()
print("sem." + lock._semlock.name.lstrip("/"), flush=True)
sys.stdin.read()
"""


@contextmanager
def semaphore_of_another_program() -> Iterator[tuple[int, str]]:
    """A process that made a semaphore: glibc maps it under another, deleted name."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        yield holder.pid, holder.stdout.readline().strip()


def test_a_semaphore_made_while_a_server_ran_stays_with_its_maker() -> None:
    before = segments()
    with semaphore_of_another_program() as (pid, name):
        assert name in segments() - before
        assert name in held_by([pid])
        assert name not in remove_leftovers(before, frozenset())
        assert name in segments()


def test_a_semaphore_nobody_holds_is_removed() -> None:
    before = segments()
    path = SHM / f"sem.mp-test{os.getpid()}"
    path.write_bytes(b"0" * 32)
    assert path.name in remove_leftovers(before, frozenset())
    assert not path.exists()


def test_mapped_memory_stays_until_it_is_unmapped() -> None:
    before = segments()
    path = SHM / f"psm_test{os.getpid()}"
    path.write_bytes(b"0" * 4096)
    with _mapped(path):
        assert path.name in held_by([os.getpid()])
        assert path.name not in remove_leftovers(before, frozenset({path.name}))
    assert path.name in remove_leftovers(before, frozenset())


@contextmanager
def _mapped(path: Path) -> Iterator[None]:
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 4096)
    try:
        yield
    finally:
        memory.close()
