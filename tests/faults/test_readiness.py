"""Servers that are slow, early, silent or never ready."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tuner.engines.base import Failure
from tuner.errors import FailureKind, Interrupted, TrialFailure
from tuner.server import interrupts
from tuner.server.fake.launching import fake_probe
from tuner.server.process import ServerProcess
from tuner.server.readiness import ReadyReport, said_last_words, wait_ready

Start = Callable[..., ServerProcess]
Ready = Callable[..., ReadyReport]
Refused = Callable[..., TrialFailure]
CRASHED = Failure(FailureKind.LAUNCH_CRASH, "crashed")


def test_a_slow_health_page_is_waited_for(fake_server: Start, ready: Ready) -> None:
    report = ready(fake_server({"slow_health_s": 0.8}, ready=False))
    assert 0.8 <= report.seconds < 5


@pytest.mark.parametrize("early_health", [True, False])
def test_ready_means_a_real_generation(
    fake_server: Start, ready: Ready, early_health: bool
) -> None:
    behaviour = {"starting_s": 0.5, "early_health": early_health}
    assert 0.5 <= ready(fake_server(behaviour, ready=False)).seconds < 4


def test_log_progress_restarts_the_patience(fake_server: Start, ready: Ready) -> None:
    behaviour = {"load_s": 1.6, "load_line_every_s": 0.2}
    report = ready(fake_server(behaviour, ready=False), timeout_s=1.2)
    assert report.seconds >= 1.6


def test_progress_does_not_outlast_the_hard_cap(fake_server: Start, refused: Refused) -> None:
    server = fake_server({"load_s": 60, "load_line_every_s": 0.1}, ready=False)
    failure = refused(server, timeout_s=1, hard_cap_s=1.2)
    assert failure.kind is FailureKind.NOT_READY
    assert "not ready 1.2 s after launch: nothing listens on its port" in failure.reason
    assert "loading weights" in failure.reason


def test_the_record_of_our_own_probing_is_no_progress(
    fake_server: Start, refused: Refused
) -> None:
    server = fake_server({"starting_s": 60, "log_requests": True}, ready=False)
    failure = refused(server, timeout_s=1.0, hard_cap_s=30)
    assert failure.kind is FailureKind.NOT_READY
    assert "no log line for 1 s: /health answered 503" in failure.reason
    assert server.log_tail().count("/health") >= 1


def test_a_host_that_needs_a_variable_to_start(
    fake_server: Start, ready: Ready, refused: Refused
) -> None:
    behaviour = {"never_ready_unless": "NCCL_P2P_DISABLE=1"}
    failure = refused(fake_server(behaviour, ready=False), timeout_s=0.5)
    assert failure.kind is FailureKind.NOT_READY
    with_variable = fake_server(behaviour, env={"NCCL_P2P_DISABLE": "1"}, ready=False)
    assert ready(with_variable).identity == "fake"


def test_json_of_another_shape_is_not_an_answer(fake_server: Start, refused: Refused) -> None:
    failure = refused(fake_server({"not_found": True}, ready=False), timeout_s=5)
    assert failure.kind is FailureKind.NOT_READY
    assert "answered without generated text" in failure.reason


def test_a_silent_server_behind_a_healthy_page_is_not_ready(
    fake_server: Start, refused: Refused
) -> None:
    failure = refused(fake_server({"silent_after": 0}, ready=False), timeout_s=1)
    assert failure.kind is FailureKind.NOT_READY


@pytest.mark.parametrize("behaviour", [{"load_s": 60}, {"silent_after": 0}])
def test_a_signal_ends_the_wait_at_once(
    fake_server: Start, ready: Ready, behaviour: dict[str, Any]
) -> None:
    """It reaches the caller although it arrives inside an event loop."""
    server = fake_server(behaviour, ready=False)

    def wait_for_ever() -> None:
        with interrupts.raise_on_signals():
            ready(server, timeout_s=60, hard_cap_s=60)

    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    started = time.monotonic()
    with pytest.raises(Interrupted):
        wait_for_ever()
    assert time.monotonic() - started < 10


def test_a_server_that_dies_at_the_probe_is_noticed_at_once(
    fake_server: Start, refused: Refused
) -> None:
    server = fake_server({"die_at_request": 1, "die_code": 7}, ready=False)
    refused(server, timeout_s=60, hard_cap_s=60)
    assert server.poll() == 7


def test_a_server_is_not_waited_for_after_its_last_words(
    fake_server: Start,
) -> None:
    """It logged that it ends itself, then writes diagnostics for minutes."""
    caught_code: list[int | None] = []
    log = "RuntimeError: wrong shape\nSIGQUIT received. signum=None"
    behaviour = {"die_at_request": 1, "dying_s": 600, "exit_log": log}
    server = fake_server(behaviour, ready=False)

    def classify(code: int | None, tail: str) -> Failure:
        caught_code.append(code)
        return Failure(FailureKind.DIED, tail.strip().splitlines()[-2])

    with pytest.raises(TrialFailure, match="wrong shape") as caught:
        wait_ready(
            server,
            replace(fake_probe(), last_words=("SIGQUIT received.",)),
            timeout_s=60,
            hard_cap_s=60,
            classify=classify,
        )
    assert caught.value.kind is FailureKind.DIED
    assert caught_code == [-signal.SIGKILL]
    assert server.poll() is None


def test_a_server_that_has_not_said_them_is_waited_for(fake_server: Start) -> None:
    server = fake_server({"startup_log": "received a request"}, ready=False)
    assert not said_last_words(server, ())
    probe = replace(fake_probe(), last_words=("SIGQUIT received.",))
    wait_ready(server, probe, timeout_s=20, hard_cap_s=40, classify=lambda code, log: CRASHED)
    assert not said_last_words(server, probe.last_words)
