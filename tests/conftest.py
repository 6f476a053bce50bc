"""Fixtures every test shares: no child process may outlive the test that started it.

`tuner` runs a command in this process, `study_yaml` writes a small study on the fake server,
`at_work_in` stands in a folder from which servers can be launched.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from tuner.cli.app import build_app
from tuner.engines.base import Failure
from tuner.errors import FailureKind
from tuner.server import ports
from tuner.server.fake.launching import fake_command, fake_probe
from tuner.server.process import ServerProcess
from tuner.server.readiness import wait_ready
from tuner.store.urls import parse_url

ROOT = Path(__file__).parents[1]
SMALL: dict[str, Any] = {
    "name": "demo",
    "engine": {"kind": "fake"},
    "space": {"parameters": {"steps": {"flag": "spec-steps", "choices": [2]}}},
    "workload": {
        "prompts": {"builtin": "mixed"}, "blocks": 2, "block_size": 2, "held_out": 4,
        "output_tokens": {"max": 8}, "warm_up": 1,
    },
    "objective": {"maximize": "output_tokens_per_s"},
    "search": {"sampler": "random", "pruner": "none"},
    "confirm": {"finalists": 1, "rounds": 2, "max_rounds": 2},
    "fidelity": {"compare": "off"},
}  # fmt: skip


def pytest_configure() -> None:
    """Signals act as in a terminal: a shell's background job and `nohup` have some ignored, which
    every process started here would inherit."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


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


@pytest.fixture(scope="session")
def tuner() -> Callable[..., Any]:
    """Run a command as a shell would: `tuner("show", "demo", "--json")` -> typer's Result."""

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(build_app(), list(arguments), prog_name="tuner")

    return invoke


@pytest.fixture(scope="session")
def study_yaml() -> Callable[..., str]:
    """A small study on the fake server as text: `study_yaml(workload={"blocks": 4})`.

    A section's keys replace those of the small study one by one; a plain value replaces it.
    """

    def write(**sections: Any) -> str:
        document = dict(SMALL)
        for name, value in sections.items():
            merge = isinstance(value, dict) and name in SMALL
            document[name] = {**SMALL[name], **value} if merge else value
        return str(yaml.safe_dump(document, sort_keys=False))

    return write


@pytest.fixture(scope="session")
def at_work_in() -> Callable[[Path], AbstractContextManager[Path]]:
    """Stand in a folder; servers launched from there still find this checkout."""

    @contextmanager
    def stand(folder: Path) -> Iterator[Path]:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("PYTHONPATH", str(ROOT))
            yield folder

    return stand


@pytest.fixture
def work(
    tmp_path: Path, at_work_in: Callable[[Path], AbstractContextManager[Path]]
) -> Iterator[Path]:
    """A folder of this test's own, in which it stands."""
    with at_work_in(tmp_path):
        yield tmp_path


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A fresh database on the server of TUNER_POSTGRES_URL, dropped afterwards."""
    server = os.environ.get("TUNER_POSTGRES_URL")
    if not server:
        pytest.skip("TUNER_POSTGRES_URL names no server")
    admin = create_engine(parse_url(server).url, isolation_level="AUTOCOMMIT")
    name = f"tuner_test_{uuid.uuid4().hex[:12]}"
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield parse_url(server).url.set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        admin.dispose()
