"""PyTorch `.bin` files: tensors are read, nothing that is pickled runs.

golden/tiny.bin was written by torch 2.13: `torch.save` of a bfloat16 fc, a d2t and a Parameter.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.drafts.checkpoint import read_values
from tuner.drafts.inspect import inspect_draft
from tuner.drafts.opening import read_checkpoint
from tuner.drafts.pickled import read_pickled

TINY = Path(__file__).parent / "golden" / "tiny.bin"


class Harmful:
    """Unpickled as usual, it would leave a file behind."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("harmed",)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["XForCausalLM"]}))
    return tmp_path


def archive(path: Path, index: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("archive/data.pkl", index)
    return path


def test_shapes_types_and_small_values() -> None:
    found = {each.name: each for each in read_pickled(TINY) or ()}
    shown = {name: (each.dtype, each.shape) for name, each in found.items()}
    assert shown == {
        "fc.weight": ("BF16", (4, 12)), "d2t": ("I64", (6,)), "norm.weight": ("F32", (4,)),
    }  # fmt: skip
    values = read_values(found["d2t"])
    assert values is not None
    assert values.tolist() == [0, 3, 6, 9, 12, 15]
    assert np.array_equal(read_values(found["norm.weight"]), np.ones(4))


def test_a_folder_of_pickled_weights_is_inspected(folder: Path) -> None:
    shutil.copy(TINY, folder / "pytorch_model.bin")
    found = read_checkpoint(str(folder))
    assert found.tensors["fc.weight"].shape == (4, 12)
    assert found.unread == ()
    assert inspect_draft(str(folder)).sizes.total == 4 * 12 + 4, "maps are no parameters"


def test_nothing_in_it_runs(folder: Path) -> None:
    path = archive(folder / "pytorch_model.bin", pickle.dumps({"fc.weight": Harmful()}))
    assert read_pickled(path) is None
    assert not (folder / "harmed").exists()
    assert read_checkpoint(str(folder)).unread == ("pytorch_model.bin",)


@pytest.mark.parametrize(
    "index",
    [
        pickle.dumps([1, 2]), pickle.dumps({"a": print}), b"", b"garbage",
        b"ctorch._utils\n_rebuild_tensor_v2\n(NI0\n(ttR.",
        b"ctorch\nSomethingElse\n.", b"(S'storage'\nS'Nothing'\nS'0'\ntQ.",
    ],
)  # fmt: skip
def test_an_index_of_anything_else_is_left_unread(folder: Path, index: bytes) -> None:
    assert read_pickled(archive(folder / "x.bin", index)) is None


@pytest.mark.parametrize("raw", [b"", b"not a pickle at all", b"PK\x03\x04"])
def test_what_is_no_archive_is_left_unread(folder: Path, raw: bytes) -> None:
    (folder / "x.bin").write_bytes(raw)
    assert read_pickled(folder / "x.bin") is None


def test_a_cut_off_archive_is_left_unread(folder: Path) -> None:
    (folder / "x.bin").write_bytes(TINY.read_bytes()[:-40])
    assert read_pickled(folder / "x.bin") is None


def test_numbers_beside_the_weights_are_left_out(folder: Path) -> None:
    assert read_pickled(archive(folder / "x.bin", pickle.dumps({"epoch": 3}))) == []
    assert read_checkpoint(str(folder)).unread == ("x.bin",)
