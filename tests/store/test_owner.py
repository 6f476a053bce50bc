"""Who owns something, and whether that process lives."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tuner.store.owner import Owner, current_owner, process_start


@pytest.fixture
def me() -> Owner:
    return current_owner(os.getpid())


def test_this_process_lives(me: Owner) -> None:
    assert me.pid == os.getpid()
    assert me.liveness() == "alive"
    assert me.label == f"pid {me.pid} on {me.host}"


def test_an_owner_comes_back_equal(me: Owner) -> None:
    assert Owner.from_json(me.to_json()) == me


@pytest.mark.parametrize("data", [{}, {"host": "h"}, {"host": "h", "pid": "x", "boot_id": ""}])
def test_anything_else_is_refused(data: dict[str, str]) -> None:
    with pytest.raises((KeyError, ValueError)):
        Owner.from_json(data)


def test_another_process_with_the_same_pid_is_not_the_owner(me: Owner) -> None:
    assert replace(me, proc_start="1").liveness() == "dead"


def test_before_the_last_boot_everything_is_dead(me: Owner) -> None:
    assert replace(me, boot_id="another").liveness() == "dead"


def test_on_another_machine_nothing_is_known(me: Owner) -> None:
    assert replace(me, boot_id="another", host="elsewhere").liveness() == "unknown"


def test_in_another_pid_namespace_nothing_is_known(me: Owner) -> None:
    assert replace(me, pid_namespace="pid:[1]").liveness() == "unknown"


def test_a_child_lives_until_it_ends(me: Owner) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        start = process_start(child.pid)
        assert start is not None
        owner = replace(me, pid=child.pid, proc_start=start)
        assert owner.liveness() == "alive"
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert owner.liveness() == "dead"  # a zombie, not yet reaped, runs nothing any more
    assert process_start(child.pid) is None
