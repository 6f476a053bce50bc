"""What fault tests share: waiting for a fake server, and load on it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tuner.engines.base import Failure
from tuner.errors import FailureKind, TrialFailure
from tuner.server import procfs
from tuner.server.fake.launching import fake_probe
from tuner.server.launch_record import MARKER
from tuner.server.process import ServerProcess
from tuner.server.readiness import ReadyReport, wait_ready
from tuner.store.database import open_store
from tuner.store.record import TrialRecord


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


STUDY = """
name: {name}
engine: {{kind: fake, behaviour: {behaviour}}}
space: {{parameters: {{steps: {{flag: spec-steps, choices: {steps}}}}}}}
workload:
  prompts: {{builtin: mixed}}
  blocks: 2
  block_size: 2
  held_out: 2
  output_tokens: {{max: 10}}
  warm_up: 1
objective: {{maximize: output_tokens_per_s}}
search: {{sampler: random, pruner: none}}
confirm: {{finalists: 1, rounds: 2, max_rounds: 2}}
fidelity: {{compare: "off"}}
execution: {{kind: local, parallel: {parallel}}}
storage: {storage}
"""


FAST = "{step_ms: 8, acceptance: [1, 1, 1, 1, 1], answer_tokens: 10}"
"""Speculation gains so much that no neighbour's load hides it."""


class RealStudy:
    """A tiny study on the fake server, run in a process of its own (see driver.py)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"s{uuid.uuid4().hex[:10]}"
        self.file = folder / "study.yaml"
        self.results = folder / "results" / self.name
        self.url = f"sqlite:///{self.results}/study.db"
        self.write()

    def write(self, **changes: Any) -> None:
        defaults = {"name": self.name, "behaviour": FAST, "steps": "[4]", "parallel": 1}
        defaults["storage"] = self.url
        self.file.write_text(STUDY.format(**{**defaults, **changes}))

    def start(self, at: str = "", do: str = "", *flags: str) -> subprocess.Popen[str]:
        driver = Path(__file__).parent / "driver.py"
        command = [sys.executable, str(driver), str(self.file), "--at", at, "--do", do, *flags]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        return subprocess.Popen(command, cwd=self.folder, env=env, **pipes)

    def run(self, at: str = "", do: str = "") -> tuple[int, str]:
        with self.start(at, do) as process:
            said, _ = process.communicate(timeout=100)
        return process.returncode, said

    def records(self) -> list[TrialRecord]:
        with open_store(self.url, create=False) as store:
            return store.trials(self.name)

    def launches(self) -> list[tuple[int, int]]:
        with open_store(self.url, create=False) as store:
            return [(launch.round, launch.trial) for launch in store.confirmations(self.name)]

    def integrity(self) -> str:
        with closing(sqlite3.connect(self.results / "study.db")) as connection:
            return str(connection.execute("PRAGMA integrity_check").fetchone()[0])

    def orphans(self) -> list[int]:
        """Processes of this study's servers that still run."""
        found = []
        for stat in procfs.all_processes():
            environ = procfs.read_environ(stat.id.pid) or {}
            if stat.is_alive and environ.get(MARKER, "").startswith(f"{self.name}:"):
                found.append(stat.id.pid)
        return found


@pytest.fixture
def real_study(tmp_path: Path) -> RealStudy:
    return RealStudy(tmp_path)
