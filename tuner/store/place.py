"""Owns where a study lives: its database URL and results folder, by its file or its name."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import StoreError, UsageError
from tuner.store.files import write_text
from tuner.store.plain import dump_json
from tuner.store.results import ResultsFolder
from tuner.store.urls import parse_url

RESULTS = Path("results")


@dataclass(frozen=True, slots=True)
class StudyPlace:
    """A study's name, storage URL and results folder."""

    name: str
    url: str
    results: ResultsFolder


def place_of(name: str, storage: str | None, base: Path = RESULTS) -> StudyPlace:
    """Where a study of this name and `storage:` lives; nothing is created.

    An SQLite file keeps its raw files beside it, in a folder that ends in the study's name.
    """
    if storage is None:
        return _default((base / name).absolute(), name)
    path = parse_url(storage).path
    if path is None:
        return StudyPlace(name, storage, ResultsFolder((base / name).absolute()))
    root = path.parent if path.parent.name == name else path.parent / name
    return StudyPlace(name, storage, ResultsFolder(root))


def note_place(place: StudyPlace) -> None:
    """Leave `study.json`, so that reading commands find the database by the study's name."""
    url = parse_url(place.url)
    # A database in the folder itself is found wherever the folder is moved or copied to.
    is_inside = url.path == place.results.study_db
    data = {
        "name": place.name,
        "storage": None if is_inside else url.shown,
        "needs_password": url.has_password,
    }
    write_text(place.results.root / "study.json", dump_json(data, indent=1) + "\n")


def _default(root: Path, name: str) -> StudyPlace:
    results = ResultsFolder(root)
    return StudyPlace(name, f"sqlite:///{results.study_db}", results)


def find_place(name: str, base: Path = RESULTS) -> StudyPlace:
    """The study of this name under `base`; a path to its folder works too.

    Raises:
        UsageError: there is none; the message holds the absolute path that was looked at.
    """
    root = (base / name if (base / name).is_dir() else Path(name)).absolute()
    noted = root / "study.json"
    if noted.is_file():
        return _noted(noted, root)
    if (root / "study.db").is_file():
        return _default(root, root.name)
    looked_at = (base / name).absolute()
    raise UsageError(
        f"study {name}: must be a study file or a study's name, got nothing at {looked_at}.",
        _near(name, base),
    )


def _noted(path: Path, root: Path) -> StudyPlace:
    try:
        data = json.loads(path.read_text())
        name, url, secret = data["name"], data["storage"], data["needs_password"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: must name the study's database, got: {error}.",
                         "Give the study file instead of the name.") from error  # fmt: skip
    if secret:
        raise UsageError(
            f"study {name}: must be given as its study file, got only its name.",
            f"The password of {url} is not kept; the study file has it.",
        )
    return StudyPlace(name, url, ResultsFolder(root)) if url else _default(root, name)


def _near(name: str, base: Path) -> str:
    known = sorted(p.parent.name for p in base.glob("*/study.*") if p.suffix in (".db", ".json"))
    close = difflib.get_close_matches(name, sorted(set(known)), n=1)
    if close:
        return f"Did you mean {close[0]}?"
    return "Give the path of a study file, or run the study first."
