"""Launches that fail: each is noticed at once and named for what it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.errors import FailureKind, TrialFailure
from tuner.server import ports
from tuner.server.environments import EnvironmentDrift, environment_drift
from tuner.server.fake.launching import fake_command
from tuner.server.process import ServerProcess

Start = Callable[..., ServerProcess]
Refused = Callable[..., TrialFailure]

PATIENT = {"timeout_s": 60, "hard_cap_s": 60}


@pytest.mark.parametrize(
    ("log", "code", "kind", "is_draft_fault"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory.", 1, FailureKind.OUT_OF_MEMORY, False),
        ("ValueError: draft vocab size 32000 != 151936", 1, FailureKind.LAUNCH_CRASH, True),
        ("RuntimeError: selected index k out of range", 1, FailureKind.LAUNCH_CRASH, False),
        ("Scheduler hit an exception", -9, FailureKind.LAUNCH_CRASH, False),
    ],
)
def test_an_exit_is_classified_long_before_the_timeout(
    fake_server: Start, refused: Refused, log: str, code: int, kind: FailureKind,
    is_draft_fault: bool,
) -> None:  # fmt: skip
    server = fake_server({"exit_code": code, "exit_log": log, "exit_after_s": 0.1}, ready=False)
    failure = refused(server, **PATIENT)
    assert failure.kind is kind
    assert failure.is_draft_fault is is_draft_fault
    assert server.poll() == code
    assert server.exit_reason().endswith(log)
    assert time.monotonic() - server.started_monotonic < 10


def test_an_unknown_flag_exits_with_code_2(fake_server: Start, refused: Refused) -> None:
    server = fake_server({}, {"draft-max": 8}, ready=False)
    failure = refused(server, **PATIENT)
    assert failure.kind is FailureKind.REJECTED_FLAG
    assert "unrecognized arguments: --draft-max" in failure.reason


def test_every_third_launch_finds_its_address_taken(
    fake_server: Start, refused: Refused, tmp_path: Path
) -> None:
    behaviour = {"address_in_use_every": 3, "state_dir": str(tmp_path)}
    fake_server(behaviour)
    fake_server(behaviour)
    failure = refused(fake_server(behaviour, ready=False), **PATIENT)
    assert failure.kind is FailureKind.PORT_IN_USE
    assert failure.kind.retries == 2
    assert not failure.kind.is_config_fault
    fake_server(behaviour)


def test_a_stranger_on_the_port_is_never_measured(
    fake_server: Start, refused: Refused, tmp_path: Path
) -> None:
    """Ours loads for long, the stranger answers every probe at once."""
    stranger = fake_server()
    ours = ServerProcess.launch(
        fake_command(stranger.port, {"load_s": 60}),
        port=stranger.port,
        log_path=tmp_path / "ours" / "server.log",
    )
    with ours:
        failure = refused(ours, **PATIENT)
        assert failure.kind is FailureKind.PORT_IN_USE
        assert f"process {stranger.pid}" in failure.reason
    assert stranger.poll() is None


def test_a_server_that_lost_its_port_to_a_stranger_fails_as_port_in_use(
    fake_server: Start, refused: Refused, tmp_path: Path
) -> None:
    stranger = fake_server()
    ours = ServerProcess.launch(
        fake_command(stranger.port),
        port=stranger.port,
        log_path=tmp_path / "ours" / "server.log",
    )
    with ours:
        assert refused(ours, **PATIENT).kind is FailureKind.PORT_IN_USE
    assert stranger.poll() is None


def test_the_wrong_model_is_refused(fake_server: Start, refused: Refused) -> None:
    server = fake_server({"served_model": "other"}, ready=False)
    failure = refused(server, **PATIENT)
    assert failure.kind is FailureKind.NOT_READY
    assert "the served model must be fake, got other" in failure.reason


def test_fresh_ports_do_not_repeat() -> None:
    handed_out = [ports.free_port() for _ in range(50)]
    assert len(set(handed_out)) == 50


def test_the_environment_reaches_the_server_and_only_that_server(fake_server: Start) -> None:
    first = fake_server({"print_env": ["FOO"]}, env={"FOO": "bar"})
    second = fake_server({"print_env": ["FOO"]})
    assert "env FOO=bar" in first.log_tail()
    assert "env FOO=(unset)" in second.log_tail()


def test_the_workers_own_environment_is_seen(fake_server: Start) -> None:
    """An engine overwrites a variable for its worker, and forgets another."""
    overwritten = {"NCCL_CUMEM_ENABLE": "0", "NCCL_ALGO": None}
    server = fake_server(
        {"worker": True, "worker_env": overwritten},
        env={"NCCL_CUMEM_ENABLE": "1", "NCCL_ALGO": "Ring"},
    )
    environments = server.environments()
    worker = next(pid for pid in environments if pid != server.pid)
    assert environments[server.pid]["NCCL_CUMEM_ENABLE"] == "1"
    requested = {"NCCL_CUMEM_ENABLE": "1", "NCCL_ALGO": "Ring", "NCCL_PROTO": None}
    assert environment_drift(requested, environments) == [
        EnvironmentDrift("NCCL_ALGO", "Ring", None, worker),
        EnvironmentDrift("NCCL_CUMEM_ENABLE", "1", "0", worker),
    ]
