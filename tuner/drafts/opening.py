"""Owns opening what a user names as a checkpoint: a folder, a cache entry, a GGUF file."""

from __future__ import annotations

from pathlib import Path

from tuner.drafts.checkpoint import Checkpoint, find_folder, read_folder
from tuner.drafts.gguf import read_gguf


def read_checkpoint(text: str) -> Checkpoint:
    """Read a checkpoint's configuration and headers; a folder may hold one GGUF model.

    Raises:
        UsageError: there is no such thing, or a file in it that is not what its name says.
    """
    path = Path(text).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return read_gguf(path)
    folder = find_folder(text)
    models = sorted(file for file in folder.glob("*.gguf") if "mmproj" not in file.name)
    if models and not (folder / "config.json").exists():
        return read_gguf(models[0])
    return read_folder(folder)
