"""Fixtures every test shares: no child process may outlive the test that started it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from tuner.engines.base import Failure
from tuner.errors import FailureKind
from tuner.server import ports
from tuner.server.fake.launching import fake_command, fake_probe
from tuner.server.process import ServerProcess
from tuner.server.readiness import wait_ready


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


@pytest.fixture
def fake_server(
    no_child_outlives_the_test: None, tmp_path: Path
) -> Iterator[Callable[..., ServerProcess]]:
    """Start fake servers: `fake_server({"step_ms": 3}, {"spec-steps": 2})` -> ServerProcess.

    It waits until the server is ready unless `ready=False`; all are stopped after the test.
    """
    with ExitStack() as stack:

        def start(
            behaviour: Mapping[str, Any] | None = None,
            flags: Mapping[str, Any] | None = None,
            *,
            env: Mapping[str, str | None] | None = None,
            ready: bool = True,
        ) -> ServerProcess:
            port = ports.free_port()
            server = ServerProcess.launch(
                fake_command(port, behaviour, flags, env),
                port=port,
                log_path=tmp_path / f"server-{port}" / "server.log",
                label="test:0",
            )
            stack.callback(server.stop, 2.0)
            if ready:
                wait_ready(
                    server,
                    fake_probe((flags or {}).get("model", "fake")),
                    timeout_s=10,
                    hard_cap_s=20,
                    classify=lambda code, log: Failure(FailureKind.LAUNCH_CRASH, log[-200:]),
                )
            return server

        yield start
