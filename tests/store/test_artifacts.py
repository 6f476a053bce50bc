"""Raw files that the dashboard offers."""

from __future__ import annotations

import http.client
import threading
from pathlib import Path

import optuna
import pytest
from optuna.artifacts.exceptions import ArtifactNotFound

from tuner.store.artifacts import ResultFiles, files_of
from tuner.store.dashboard import dashboard
from tuner.store.dashboard_content import DashboardContent, save_content
from tuner.store.database import StudyMeta, open_store
from tuner.store.place import StudyPlace
from tuner.store.results import ResultsFolder


@pytest.fixture
def place(tmp_path: Path) -> StudyPlace:
    """A study with one finished trial whose log and record are on disk."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    with open_store(url, create=True) as store:
        study = optuna.create_study(study_name="s", storage=store.optuna_storage)
        study.tell(study.ask(), 1.0)
        store.save_study_meta(StudyMeta("s", "s", 1, "2026-11-02T09:00:00Z", {"uid": "u1"}))
    results = ResultsFolder(tmp_path)
    folder = results.trial_folder(0)
    (folder / "server.log").write_text("it started\n")
    (folder / "record.json").write_text("{}")
    (folder / "secret.txt").write_text("no")
    return StudyPlace("s", url, results)


def test_what_is_offered(place: StudyPlace) -> None:
    (place.results.deploy_folder).mkdir()
    (place.results.deploy_folder / "launch.sh").write_text("#!/bin/sh\n")
    (place.results.deploy_folder / "link").symlink_to("/etc/passwd")
    found = files_of(place).offered()
    names = sorted((each.trial, each.path.name) for each in found.values() if each.trial == 0)
    assert names == [(0, "record.json"), (0, "server.log")]
    assert [each.path.name for each in found.values() if each.trial is None] == ["launch.sh"]


def test_identifiers_need_the_studys_own_identity(place: StudyPlace) -> None:
    other = ResultFiles(place.results, "u2")
    assert set(files_of(place).offered()).isdisjoint(other.offered())


def test_it_only_reads(place: StudyPlace) -> None:
    files = files_of(place)
    with pytest.raises(ArtifactNotFound):
        files.open_reader("../../etc/passwd")
    with pytest.raises(PermissionError):
        files.remove("x")


def test_a_browser_reads_the_log(place: StudyPlace) -> None:
    files = files_of(place)
    save_content(place.url, "s", DashboardContent(files=files))
    log = next(name for name, each in files.offered().items() if each.path.suffix == ".log")
    with dashboard(place.url, "s", 0, files) as served:
        thread = threading.Thread(target=served.serve)
        thread.start()
        connection = http.client.HTTPConnection(served.url.split("/")[2], timeout=10)
        connection.request("GET", f"/artifacts/1/1/{log}")
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        served.stop()
        thread.join(timeout=10)
    assert (answer.status, body) == (200, b"it started\n")
    assert answer.headers["Content-Type"] == "text/plain"
