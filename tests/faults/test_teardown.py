"""Servers that do not want to go: after stop nothing of them is left, or it says what is."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import FailureKind, Interrupted, TrialFailure
from tuner.server import interrupts, ports, procfs, teardown
from tuner.server.process import ServerProcess

Start = Callable[..., ServerProcess]


def deny(descriptor: int, number: int) -> None:
    raise PermissionError(1, "Operation not permitted")


def assert_gone(server: ServerProcess, members: list[procfs.ProcessStat]) -> None:
    assert members, "there was nothing to stop"
    assert [s for s in members if procfs.is_alive(s.id)] == []
    assert server.members() == []
    assert ports.is_free(server.port)


@pytest.mark.parametrize(
    "behaviour",
    [
        {"trap_sigterm": True},
        {"double_fork": True},
        {"surviving_child": True},
        {"worker": True, "trap_sigterm": True, "double_fork": True, "surviving_child": True},
    ],
    ids=lambda b: "+".join(b),
)
def test_nothing_survives_a_stop(fake_server: Start, behaviour: dict[str, Any]) -> None:
    server = fake_server(behaviour)
    members = server.members()
    report = server.stop(grace_s=0.3)
    assert report.how == "killed"
    assert_gone(server, members)


def test_an_obedient_server_is_only_asked(fake_server: Start) -> None:
    server = fake_server({"worker": True})
    members = server.members()
    assert len(members) == 2
    assert server.stop(grace_s=10).how == "terminated"
    assert server.poll() == 0
    assert_gone(server, members)


def test_children_of_a_server_that_died_are_stopped(fake_server: Start, until: Any) -> None:
    server = fake_server({"surviving_child": True, "double_fork": True})
    members = server.members()
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: server.poll() is not None)
    assert ports.owner_pids(server.port), "the grandchild holds the port"
    server.stop(grace_s=0.2)
    assert_gone(server, members)


def test_leaked_shared_memory_is_removed_after_a_hard_kill(fake_server: Start) -> None:
    stranger = Path(f"/dev/shm/tuner-test-{os.getpid()}")
    stranger.write_bytes(b"not yours")
    try:
        server = fake_server({"shm_leak_bytes": 100_000_000, "trap_sigterm": True})
        leak = Path(f"/dev/shm/tuner-fake-{server.pid}")
        assert leak.stat().st_size == 100_000_000
        server.stop(grace_s=0.1)
        assert not leak.exists()
        crashed = fake_server({"shm_leak_bytes": 100_000_000})
        leak = Path(f"/dev/shm/tuner-fake-{crashed.pid}")
        os.kill(crashed.pid, signal.SIGKILL)
        assert crashed.wait(10) == -signal.SIGKILL
        assert leak.exists()
        crashed.stop()
        assert not leak.exists()
        assert stranger.read_bytes() == b"not yours"
    finally:
        stranger.unlink()


def test_a_process_that_cannot_be_killed_ends_in_not_stopped(
    fake_server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL is denied to the harness, as for a process stuck in a driver."""
    server = fake_server({"trap_sigterm": True})
    monkeypatch.setattr(teardown, "FORCE_S", 0.3)
    with monkeypatch.context() as denied:
        denied.setattr(signal, "pidfd_send_signal", deny)
        with pytest.raises(TrialFailure, match=str(server.pid)) as caught:
            server.stop(grace_s=0.1)
    assert caught.value.kind is FailureKind.NOT_STOPPED
    assert "reboot" in caught.value.hint
    server.stop(grace_s=0.1)
    assert server.members() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_loading_leaves_nothing(fake_server: Start, number: int) -> None:
    server = fake_server({"load_s": 60, "trap_sigterm": True}, ready=False)

    def load_until_interrupted() -> None:
        with interrupts.raise_on_signals(), server:
            signal.raise_signal(number)
            time.sleep(30)

    with pytest.raises(Interrupted):
        load_until_interrupted()
    assert server.poll() is not None
    assert server.members() == []


def test_a_second_signal_does_not_skip_the_cleanup(fake_server: Start) -> None:
    server = fake_server({"trap_sigterm": True})
    members = server.members()
    for after in (0.1, 0.2):
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)).start()
    received: list[int] = []

    def run_until_interrupted() -> None:
        with interrupts.raise_on_signals() as seen:
            try:
                time.sleep(30)
            finally:
                server.stop(grace_s=0.5)
                received.extend(seen.received)

    with pytest.raises(Interrupted):
        run_until_interrupted()
    assert received == [signal.SIGINT, signal.SIGINT]
    assert_gone(server, members)


def test_ctrl_c_during_a_stop_waits_for_its_end(fake_server: Start) -> None:
    server = fake_server({"trap_sigterm": True})
    members = server.members()
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        server.stop(grace_s=0.5)
    assert_gone(server, members)
