"""Owns reading a checkpoint without running or loading it: config.json and tensor headers.

Reads safetensors headers and the few small tensors a check needs; never executes repository
code. Knows no engine and no rule.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import UsageError

MAX_HEADER_BYTES = 256 * 1024 * 1024
MAX_READ_BYTES = 64 * 1024 * 1024
_DTYPES = {
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "u1",
    "F64": "<f8", "F32": "<f4", "F16": "<f2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One stored tensor: where its bytes are, without having read them."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int
    end: int

    @property
    def count(self) -> int:
        """Number of elements."""
        total = 1
        for size in self.shape:
            total *= size
        return total


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder: its configuration and what tensors it stores.

    Args:
        folder: the folder that was read.
        config: config.json, {} when it has none.
        tensors: by name; {} when weights are absent or in a form whose headers are not read.
        unread: weight files that were found and not read (pickled `.bin`, GGUF).
        tokenizer: digest of the vocabulary, "" when there is no tokenizer file.
        training: training metadata found beside the weights, by file and key.
        cut_off: weight files that are shorter than their headers say.
        absent: weight files that the index names and that are not there.
    """

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    tokenizer: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    cut_off: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        """The first architecture of config.json, "" when it names none."""
        names = self.config.get("architectures") or [""]
        return str(names[0])

    def setting(self, name: str, default: Any = None) -> Any:
        """A value of config.json; a nested text configuration is looked into as well."""
        if self.config.get(name) is not None:
            return self.config[name]
        nested = self.config.get("text_config")
        return nested.get(name, default) if isinstance(nested, dict) else default

    def tensor(self, *names: str) -> Tensor | None:
        """The first tensor of these names, bare or with the `model.` prefix."""
        for name in names:
            for full in (name, f"model.{name}"):
                if full in self.tensors:
                    return self.tensors[full]
        return None


def find_folder(text: str) -> Path:
    """The folder of a checkpoint: a path, or a name in the local Hugging Face cache.

    A cache entry (`models--…`) leads to the snapshot that its `refs/main` names.

    Raises:
        UsageError: there is neither; nothing is downloaded.
    """
    path = Path(text).expanduser()
    if path.is_dir():
        return _snapshot(path) or path
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()
    found = _snapshot(cache / f"models--{text.replace('/', '--')}")
    if found is not None:
        return found
    raise UsageError(
        f"{text}: must be a folder with config.json or a model in the Hugging Face cache.",
        "Download it first; this command reads local files only.",
    )


def _snapshot(entry: Path) -> Path | None:
    """The snapshot of a cache entry: what `refs/main` names, else the newest; None for none."""
    reference = entry / "refs" / "main"
    if reference.is_file():
        named = entry / "snapshots" / Path(reference.read_text(errors="replace").strip()).name
        if (named / "config.json").is_file():
            return named
    found = list((entry / "snapshots").glob("*/config.json"))
    return max(found, key=lambda file: file.stat().st_mtime).parent if found else None


def read_folder(folder: Path) -> Checkpoint:
    """Read a checkpoint folder's configuration and headers.

    Raises:
        UsageError: a file in it is not what its name says.
    """
    tensors: dict[str, Tensor] = {}
    cut_off: list[str] = []
    for file in sorted(folder.glob("*.safetensors")):
        own = list(read_header(file))
        tensors.update((tensor.name, tensor) for tensor in own)
        if file.stat().st_size < max((tensor.end for tensor in own), default=0):
            cut_off.append(file.name)
    unread = [file.name for suffix in ("*.bin", "*.pt", "*.gguf") for file in folder.glob(suffix)]
    return Checkpoint(
        folder=folder,
        config=_read_json(folder / "config.json"),
        tensors=tensors,
        unread=tuple(sorted(unread)),
        tokenizer=vocabulary_digest(folder),
        training=training_metadata(folder),
        cut_off=tuple(cut_off),
        absent=tuple(_absent(folder)),
    )


def _absent(folder: Path) -> list[str]:
    """Files that the index of a checkpoint in shards names and that are not there."""
    names = _read_json(folder / "model.safetensors.index.json").get("weight_map", {})
    wanted = {str(name) for name in names.values()} if isinstance(names, dict) else set()
    return sorted(name for name in wanted if not (folder / Path(name).name).is_file())


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path}: must be a JSON file, got {error}", "Download the checkpoint again."
        ) from error
    if not isinstance(data, dict):
        raise UsageError(
            f"{path}: must hold a JSON object, got {type(data).__name__}.",
            "Download the checkpoint again.",
        )
    return data


def read_header(file: Path) -> Iterator[Tensor]:
    """The tensors of a safetensors file, from its header alone.

    The format: 8 bytes little-endian length, then so many bytes of JSON (huggingface/safetensors
    README, "Format").

    Raises:
        UsageError: the file is cut off or is no safetensors file.
    """
    try:
        with file.open("rb") as handle:
            (length,) = struct.unpack("<Q", handle.read(8))
            if length > MAX_HEADER_BYTES:
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(handle.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                shape = tuple(int(size) for size in entry["shape"])
                if not 0 <= begin <= end or min(shape, default=0) < 0:
                    raise ValueError(f"{name} at {begin} to {end} with shape {list(shape)}")
                start = 8 + length
                yield Tensor(name, entry["dtype"], shape, file, start + begin, start + end)
    except (
        OSError, struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError,
    ) as error:  # fmt: skip
        raise UsageError(
            f"{file}: must be a complete safetensors file, got {error}",
            "Download it again; a Git LFS pointer is not the file itself.",
        ) from error


def read_values(tensor: Tensor) -> npt.NDArray[Any] | None:
    """A small tensor's values; None for types numpy lacks, large ones, or a cut-off file."""
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None or tensor.end - tensor.begin > MAX_READ_BYTES:
        return None
    with tensor.file.open("rb") as handle:
        handle.seek(tensor.begin)
        raw = handle.read(tensor.end - tensor.begin)
    if len(raw) != tensor.end - tensor.begin:
        return None
    return np.frombuffer(raw, dtype=dtype).reshape(tensor.shape)


def vocabulary_digest(folder: Path) -> str:
    """Digest of token → id; equal for equal vocabularies whatever the file's layout."""
    path = folder / "tokenizer.json"
    if not path.exists():
        return ""
    model = _read_json(path).get("model", {})
    vocabulary = model.get("vocab", {}) if isinstance(model, dict) else {}
    text = json.dumps(vocabulary, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def training_metadata(folder: Path) -> dict[str, Any]:
    """What the trainer left: samples, epochs, steps, data, from the files trainers write."""
    wanted = {
        "num_train_epochs", "max_steps", "global_step", "train_samples", "num_train_samples",
        "dataset", "train_data_path", "learning_rate", "epoch", "total_flos",
    }  # fmt: skip
    found: dict[str, Any] = {}
    for name in ("trainer_state.json", "training_args.json", "train_config.json"):
        data = _read_json(folder / name)
        found.update({f"{name}: {key}": data[key] for key in sorted(wanted & data.keys())})
    return found
