"""What fault tests share: waiting for a fake server, and load on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tuner.engines.base import Failure
from tuner.errors import FailureKind, TrialFailure
from tuner.server.fake.launching import fake_probe
from tuner.server.process import ServerProcess
from tuner.server.readiness import ReadyReport, wait_ready


def classify(code: int | None, log: str) -> Failure:
    """A stand-in for an engine's classification: OOM and usage errors, else a crash."""
    if "out of memory" in log:
        return Failure(FailureKind.OUT_OF_MEMORY, "CUDA out of memory", "Lower the memory.")
    if "vocab" in log:
        return Failure(FailureKind.LAUNCH_CRASH, "vocab mismatch", is_draft_fault=True)
    if code == 2:
        return Failure(FailureKind.REJECTED_FLAG, log.strip().splitlines()[-1])
    return Failure(FailureKind.LAUNCH_CRASH, log.strip()[-200:])


@pytest.fixture
def ready() -> Callable[..., ReadyReport]:
    """Wait for a server with short patience."""

    def wait(
        server: ServerProcess, timeout_s: float = 5, hard_cap_s: float = 10, **probe: Any
    ) -> ReadyReport:
        return wait_ready(
            server,
            fake_probe(**probe),
            timeout_s=timeout_s,
            hard_cap_s=hard_cap_s,
            classify=classify,
        )

    return wait


@pytest.fixture
def refused(ready: Callable[..., ReadyReport]) -> Callable[..., TrialFailure]:
    """The failure that waiting for a server ends with."""

    def wait(server: ServerProcess, **patience: Any) -> TrialFailure:
        with pytest.raises(TrialFailure) as caught:
            ready(server, **patience)
        return caught.value

    return wait


@pytest.fixture
def send() -> Iterator[Callable[..., Any]]:
    """Send requests in the background, as many at once; never waits for them."""
    with httpx.Client(timeout=10, trust_env=False, verify=False) as client:
        pool = ThreadPoolExecutor(16)

        def post(server: ServerProcess, prompt: str, max_tokens: int) -> int:
            messages = [{"role": "user", "content": prompt}]
            body = {"messages": messages, "max_tokens": max_tokens}
            try:
                answer = client.post(f"{server.base_url}/v1/chat/completions", json=body)
            except httpx.HTTPError:
                return 0
            return answer.status_code

        def begin(server: ServerProcess, count: int, max_tokens: int = 4) -> list[Any]:
            return [pool.submit(post, server, f"prompt {i}", max_tokens) for i in range(count)]

        yield begin
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def until() -> Callable[..., Any]:
    """Poll a function until it returns something true, for a bounded time."""

    def wait(read: Callable[[], Any], seconds: float = 10.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (value := read()):
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.01)
        return value

    return wait
