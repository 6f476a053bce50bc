"""Fixtures every test shares: no child process may outlive the test that started it."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest


def _children() -> set[tuple[int, float]]:
    found = set()
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE:
                found.add((child.pid, child.create_time()))
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture(autouse=True)
def no_child_outlives_the_test() -> Iterator[None]:
    """Fail the test, and end the child, when a process it started is still alive."""
    before = _children()
    yield
    left = _children() - before
    for pid, _ in left:
        psutil.Process(pid).kill()
    assert not left, f"child processes outlived the test: {sorted(pid for pid, _ in left)}"
