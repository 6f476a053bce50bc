"""Owns opening what a user names as a checkpoint: a folder, a cache entry, a GGUF file.

In a folder safetensors come before `.bin` files.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tuner.drafts.checkpoint import Checkpoint, Tensor, find_folder, read_folder
from tuner.drafts.gguf import read_gguf
from tuner.drafts.pickled import read_pickled


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
    found = read_folder(folder)
    return found if found.tensors else _with_pickled(found)


def _with_pickled(checkpoint: Checkpoint) -> Checkpoint:
    """The same with the tensors of its `.bin` files, as far as those hold nothing else."""
    tensors: dict[str, Tensor] = {}
    unread = []
    for name in checkpoint.unread:
        found = read_pickled(checkpoint.folder / name)
        if not found:
            unread.append(name)
        tensors.update((tensor.name, tensor) for tensor in found or ())
    return replace(checkpoint, tensors=tensors, unread=tuple(unread))
