"""Servers that fail while they are used: the watchdog says so in words."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tuner.server import procfs
from tuner.server.process import ServerProcess
from tuner.server.watchdog import Watchdog

Start = Callable[..., ServerProcess]
Send = Callable[..., list[Any]]
Until = Callable[..., Any]


class Clock:
    """A clock the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def seconds_pass(watchdog: Watchdog, clock: Clock, seconds: int) -> list[str | None]:
    answers = []
    for _ in range(seconds):
        clock.now += 1.0
        answers.append(watchdog.alive())
    return answers


def test_an_exit_under_load_is_noticed(fake_server: Start, send: Send, until: Until) -> None:
    """SIGABRT at the 30th request, as a debug assertion at long context."""
    server = fake_server(
        {"die_at_request": 30, "die_signal": "SIGABRT", "exit_log": "GGML_ASSERT"}
    )
    watchdog = Watchdog(server)
    assert watchdog.alive() is None
    send(server, 40)
    assert until(watchdog.alive) == "the server killed by SIGABRT: GGML_ASSERT"
    assert server.poll() == -signal.SIGABRT


def test_memory_that_runs_out_only_under_load(
    fake_server: Start, send: Send, until: Until
) -> None:
    behaviour = {"die_at_concurrency": 8, "exit_log": "CUDA out of memory", "ttft_ms": 300}
    server = fake_server(behaviour)
    watchdog = Watchdog(server)
    assert [f.result() for f in send(server, 3)] == [200, 200, 200]
    assert watchdog.alive() is None
    send(server, 12)
    assert "CUDA out of memory" in until(watchdog.alive)


def test_a_dead_worker_behind_a_living_front(fake_server: Start, send: Send, until: Until) -> None:
    server = fake_server({"worker_dies_at_request": 5})
    clock = Clock()
    watchdog = Watchdog(server, clock)
    worker = next(s.id.pid for s in server.members() if s.id.pid != server.pid)
    assert seconds_pass(watchdog, clock, 5) == [None] * 5
    futures = send(server, 6)
    until(lambda: worker not in {s.id.pid for s in server.members()})
    answers = seconds_pass(watchdog, clock, 8)
    assert answers[-1] is not None
    assert f"worker process {worker}" in answers[-1]
    assert httpx.get(f"{server.base_url}/health", trust_env=False, verify=False).status_code == 200
    server.stop(1)
    assert len(futures) == 6


def test_a_lost_helper_of_a_busy_server_is_no_failure(fake_server: Start, send: Send) -> None:
    server = fake_server({"worker": True, "step_ms": 0, "ttft_ms": 0, "answer_tokens": 20000})
    clock = Clock()
    watchdog = Watchdog(server, clock)
    worker = next(s.id.pid for s in server.members() if s.id.pid != server.pid)
    os.kill(worker, signal.SIGKILL)
    for _ in range(5):
        assert {f.result() for f in send(server, 4, max_tokens=20000)} == {200}
        assert seconds_pass(watchdog, clock, 1) == [None]


def test_a_stopped_server_is_named(fake_server: Start, until: Until) -> None:
    server = fake_server()
    clock = Clock()
    watchdog = Watchdog(server, clock)
    os.kill(server.pid, signal.SIGSTOP)
    until(lambda: getattr(procfs.read_stat(server.pid), "state", "") == "T")
    answers = seconds_pass(watchdog, clock, 7)
    assert answers[:3] == [None] * 3
    assert answers[-1] == f"the server process {server.pid} is stopped (SIGSTOP or a debugger)"


def test_peak_memory_is_kept(fake_server: Start) -> None:
    watchdog = Watchdog(fake_server({"worker": True}))
    assert watchdog.peak_rss_bytes > 5 << 20


def test_a_log_flood_neither_blocks_nor_fills_the_disk(fake_server: Start, send: Send) -> None:
    server = fake_server({"log_flood_bytes": 5_000_000})
    assert [f.result() for f in send(server, 4)] == [200] * 4
    assert server.log_tail(200).count("x") > 150
    assert server.log_path.stat().st_size <= 16 << 20


@pytest.mark.parametrize(
    "behaviour", [{"silent_after": 3}, {"silent_at_concurrency": 4, "ttft_ms": 200}]
)
def test_health_is_not_progress(fake_server: Start, send: Send, behaviour: dict[str, Any]) -> None:
    """The process is whole and healthy; only missing tokens tell."""
    server = fake_server(behaviour)
    futures = send(server, 6)
    assert Watchdog(server).alive() is None
    assert httpx.get(f"{server.base_url}/health", trust_env=False, verify=False).status_code == 200
    server.stop(1)
    assert 0 in [f.result() for f in futures]
