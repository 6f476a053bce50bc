"""Owns where the files that come with the tuner lie: search spaces, studies, schemas.

`shipped:NAME` in an `include` means the search space of that name, wherever the tuner is
installed.
"""

from __future__ import annotations

from pathlib import Path

PREFIX = "shipped:"
SPACES = "search_spaces"
STUDIES = "studies"
DOCS = "docs"

_PACKAGE = Path(__file__).resolve().parent.parent
_INSTALLED = _PACKAGE / "shipped"


def shipped_folder(kind: str) -> Path:
    """The folder of shipped files of a kind: the package's, or the source checkout's."""
    installed = _INSTALLED / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def include_path(name: str, folder: Path) -> Path:
    """The file that an `include` names: a shipped space, or relative to the including file."""
    if name.startswith(PREFIX):
        return shipped_folder(SPACES) / name.removeprefix(PREFIX)
    return folder / name
