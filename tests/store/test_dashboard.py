"""The dashboard answers reading requests of this host, and nothing else."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

from tuner.errors import HostError, StoreError
from tuner.store.dashboard import Dashboard, dashboard
from tuner.store.database import open_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with one study and one finished trial."""
    text = f"sqlite:///{tmp_path / 'study.db'}"
    with open_store(text, create=True) as store:
        study = optuna.create_study(
            study_name="s", storage=store.optuna_storage, direction="maximize"
        )
        trial = study.ask({"steps": optuna.distributions.IntDistribution(1, 7)})
        study.tell(trial, 123.0)
        study.ask()
    return text


@pytest.fixture
def served(url: str) -> Iterator[Dashboard]:
    with dashboard(url, "s", port=0) as found:
        thread = threading.Thread(target=found.serve)
        thread.start()
        yield found
        found.stop()
        thread.join(timeout=10)
        assert not thread.is_alive()


def ask(
    served: Dashboard, method: str, path: str, host: str | None = None, body: str | None = None
) -> tuple[int, bytes]:
    address = served.url.split("/")[2]
    connection = http.client.HTTPConnection(address, timeout=10)
    headers = {"Host": host or address, "Content-Type": "application/json"}
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_pages_and_data_are_shown(served: Dashboard) -> None:
    status, page = ask(served, "GET", "/" + served.url.split("/", 3)[3])
    assert (status, b"<html" in page) == (200, True)
    status, data = ask(served, "GET", "/api/studies")
    assert status == 200
    assert [study["study_name"] for study in json.loads(data)["study_summaries"]] == ["s"]
    status, data = ask(served, "GET", "/api/studies/1?after=0")
    assert status == 200
    assert json.loads(data)["trials"][0]["values"] == [123.0]


def test_localhost_is_this_host_too(served: Dashboard) -> None:
    port = served.url.split(":")[2].split("/")[0]
    assert ask(served, "GET", "/api/studies", host=f"localhost:{port}")[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1"])
def test_other_host_names_are_refused(served: Dashboard, host: str) -> None:
    assert ask(served, "GET", "/api/studies", host=host)[0] == 421


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/studies", '{"study_name": "new", "directions": ["minimize"]}'),
        ("POST", "/api/trials/2/tell", '{"state": "Complete", "values": [99999]}'),
        ("PUT", "/api/studies/1/note", "{}"),
        ("DELETE", "/api/studies/1", None),
    ],
)
def test_nothing_can_be_changed(
    served: Dashboard, url: str, method: str, path: str, body: str | None
) -> None:
    status, _ = ask(served, method, path, body=body)
    assert status == 405
    with open_store(url, create=False) as store:
        study = optuna.load_study(study_name="s", storage=store.optuna_storage)
        assert [trial.state.name for trial in study.get_trials()] == ["COMPLETE", "RUNNING"]
        assert optuna.get_all_study_names(store.optuna_storage) == ["s"]


def test_a_taken_port_is_named(url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(HostError, match=f"port {port}: must be free"),
            dashboard(url, "s", port=port),
        ):
            pass


def test_a_missing_database_is_not_created(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match="no such file"),
        dashboard(f"sqlite:///{tmp_path / 'typo.db'}", "s"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
