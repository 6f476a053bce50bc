"""Owns reading the tensors of a PyTorch `.bin` without running what is pickled in it.

Only the index inside the archive is unpickled, and only with names that make a tensor: what
`torch.load(weights_only=True)` allows, and less. Everything else in it is refused.
"""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.drafts.checkpoint import MAX_READ_BYTES, Tensor

_KINDS = {
    "BFloat16Storage": ("BF16", 2), "HalfStorage": ("F16", 2), "FloatStorage": ("F32", 4),
    "DoubleStorage": ("F64", 8), "LongStorage": ("I64", 8), "IntStorage": ("I32", 4),
    "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1), "ByteStorage": ("U8", 1),
    "BoolStorage": ("BOOL", 1),
}  # fmt: skip
"""Types of the safetensors format, and bytes per element, by torch's class."""


@dataclass(frozen=True, slots=True)
class _Storage:
    """Where the numbers of some tensors lie in the archive."""

    dtype: str
    width: int
    entry: str


@dataclass(frozen=True, slots=True)
class _Stored:
    """A tensor as the index describes it."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]


def _tensor(storage: _Storage, offset: int, size: Any, *_: Any) -> _Stored:
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("a tensor without storage")
    return _Stored(storage, int(offset), tuple(int(each) for each in size))


def _parameter(data: Any, *_: Any) -> Any:
    return data


class _Index(pickle.Unpickler):
    """Knows the names that make a dictionary of tensors, and no other."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name; raises UnpicklingError for all that are not listed."""
        known: Mapping[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_parameter"): _parameter,
        }
        if (module, name) in known:
            return known[module, name]
        if module == "torch" and name in _KINDS:
            return name
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a tensor")

    def persistent_load(self, pid: Any) -> _Storage:
        """A storage by its reference: ("storage", class, key, device, elements)."""
        _, kind, key, *_ = pid
        dtype, width = _KINDS[kind]
        return _Storage(dtype, width, f"data/{key}")


def read_pickled(file: Path) -> list[Tensor] | None:
    """The tensors of a `.bin`; None when it is no archive of tensors alone."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {info.filename: info for info in archive.infolist()}
            name = next(each for each in entries if each.endswith("/data.pkl"))
            if entries[name].file_size > MAX_READ_BYTES:
                return None
            found = _Index(io.BytesIO(archive.read(name))).load()
        return list(_placed(file, found, entries, name.removesuffix("data.pkl")))
    except (
        OSError, zipfile.BadZipFile, StopIteration, pickle.UnpicklingError, ValueError, TypeError,
        KeyError, EOFError, AttributeError, IndexError, MemoryError, RecursionError, RuntimeError,
        NotImplementedError,
    ):  # fmt: skip
        return None


def _placed(
    file: Path, found: Any, entries: Mapping[str, zipfile.ZipInfo], prefix: str
) -> Iterator[Tensor]:
    if not isinstance(found, dict):
        raise TypeError("no dictionary")
    with file.open("rb") as handle:
        for name, each in found.items():
            if not isinstance(each, _Stored):
                continue  # a number or a nested configuration beside the weights
            handle.seek(entries[f"{prefix}{each.storage.entry}"].header_offset + 26)
            sizes = handle.read(4)
            start = handle.tell() + sum(int.from_bytes(sizes[i : i + 2], "little") for i in (0, 2))
            count = 1
            for size in each.shape:
                count *= size
            begin = start + each.offset * each.storage.width
            end = begin + count * each.storage.width
            yield Tensor(str(name), each.storage.dtype, each.shape, file, begin, end)
