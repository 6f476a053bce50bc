"""Owns what a model's files contain, as one short hash that is quick even for a terabyte.

A hash covers names, sizes, small files whole, and of large files the ends, evenly spaced pieces
and, for safetensors, the beginning of every tensor: a retrained or re-mapped checkpoint of the
same shape gets another hash. It is a change detector, not a signature. Knows no model format
beyond the safetensors header.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_WHOLE = 32 << 20
_END = 64 << 10
_PIECES = 64
_PIECE = 4 << 10
_TENSOR = 512
_MAX_HEADER = 256 << 20
_MAX_TENSORS = 20_000
_IGNORED = frozenset({".md", ".png", ".jpg", ".jpeg", ".gif", ".lock", ".metadata", ".incomplete"})


def content_hash(model: str) -> str:
    """Identity of a model: `sha256:…` of a file or folder, `name:…` of anything else.

    A name (of a hub) is not resolved: it is its own identity.
    """
    path = Path(model).expanduser()
    if not path.exists():
        return f"name:{model}"
    digest = hashlib.sha256()
    for name, file in _files(path):
        digest.update(f"{name}\0{file.stat().st_size}\0".encode())
        for piece in _pieces(file):
            digest.update(piece)
    return f"sha256:{digest.hexdigest()[:32]}"


def _files(path: Path) -> list[tuple[str, Path]]:
    if path.is_file():
        return [("", path)]  # a renamed file is the same model
    found = [
        (str(file.relative_to(path)), file)
        for file in path.rglob("*")
        if file.is_file() and _counts(file.relative_to(path))
    ]
    return sorted(found)


def _counts(relative: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in relative.parts)
    return not is_hidden and relative.suffix.lower() not in _IGNORED


def _pieces(file: Path) -> Iterator[bytes]:
    size = file.stat().st_size
    with file.open("rb") as source:
        if size <= _WHOLE:
            while data := source.read(1 << 20):
                yield data
            return
        yield source.read(_END)
        for index in range(1, _PIECES):
            yield _read_at(source, size * index // _PIECES, _PIECE)
        if file.suffix == ".safetensors":
            for offset in _tensor_offsets(source):
                yield _read_at(source, offset, _TENSOR)
        yield _read_at(source, size - _END, _END)


def _read_at(source: BinaryIO, offset: int, size: int) -> bytes:
    source.seek(offset)
    return source.read(size)


def _tensor_offsets(source: BinaryIO) -> list[int]:
    """Where each tensor begins; [] for a header that cannot be read."""
    length = int.from_bytes(_read_at(source, 0, 8), "little")
    if length > _MAX_HEADER:
        return []
    try:
        header = json.loads(source.read(length))
        offsets = sorted(
            8 + length + int(entry["data_offsets"][0])
            for name, entry in header.items()
            if name != "__metadata__"
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return []
    step = max(1, -(-len(offsets) // _MAX_TENSORS))
    return offsets[::step]
