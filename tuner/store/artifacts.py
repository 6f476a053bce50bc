"""Owns the raw files that optuna-dashboard offers as artifacts: read where they lie, not copied.

An artifact's name is derived from the study's own random identity, so that no other page of a
browser can guess it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from optuna.artifacts.exceptions import ArtifactNotFound

from tuner.store.database import open_store
from tuner.store.place import StudyPlace
from tuner.store.results import ResultsFolder

OFFERED = ("server.log", "record.json")


@dataclass(frozen=True, slots=True)
class Offered:
    """One file: the trial it belongs to; None for the study's own."""

    trial: int | None
    path: Path

    @property
    def mimetype(self) -> str:
        """What a browser shows in a tab instead of saving it."""
        return "application/json" if self.path.suffix == ".json" else "text/plain"


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """An artifact store of optuna-dashboard over a results folder; it only reads."""

    results: ResultsFolder
    uid: str

    def offered(self) -> dict[str, Offered]:
        """Every offered file by its artifact's identifier."""
        found: dict[str, Offered] = {}
        for number in self.results.trial_numbers():
            folder = self.results.trial_folder(number, create=False)
            for name in OFFERED:
                self._add(found, number, folder / name)
        if self.results.deploy_folder.is_dir():
            for path in sorted(self.results.deploy_folder.iterdir()):
                self._add(found, None, path)
        return found

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """The file's bytes; raises ArtifactNotFound for anything that is not offered."""
        offered = self.offered().get(artifact_id)
        if offered is None:
            raise ArtifactNotFound(artifact_id)
        return offered.path.open("rb")

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Refused: raises PermissionError."""
        raise PermissionError("results are only read")

    def remove(self, artifact_id: str) -> None:
        """Refused: raises PermissionError."""
        raise PermissionError("results are only read")

    def _add(self, found: dict[str, Offered], trial: int | None, path: Path) -> None:
        if path.is_file() and not path.is_symlink():
            name = f"{self.uid}:{'study' if trial is None else trial}:{path.name}"
            found[str(uuid.uuid5(uuid.NAMESPACE_OID, name))] = Offered(trial, path)


def files_of(place: StudyPlace) -> ResultFiles:
    """The files of the newest generation of a study; raises StoreError when there is none."""
    with open_store(place.url, create=False) as store:
        meta = store.newest(place.name)
    results = ResultsFolder(place.results.root, meta.generation)
    return ResultFiles(results, str(meta.document.get("uid", meta.name)))
