"""The content hash sees what matters in a model and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.host import content
from tuner.host.content import content_hash


def model(folder: Path, **files: bytes) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name.replace("__", ".")).write_bytes(data)
    return str(folder)


def safetensors(tensors: dict[str, bytes]) -> bytes:
    header, offset = {}, 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(tensors.values())


def test_names_are_their_own_identity() -> None:
    assert content_hash("org/model") == "name:org/model"


def test_equal_content_elsewhere_is_equal(tmp_path: Path) -> None:
    files = {"config__json": b"{}", "model__safetensors": b"x" * 100}
    one = content_hash(model(tmp_path / "a", **files))
    two = content_hash(model(tmp_path / "deeper" / "b", **files))
    assert one == two
    assert one.startswith("sha256:")


def test_a_renamed_file_is_the_same_model(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"abc")
    (tmp_path / "b.gguf").write_bytes(b"abc")
    assert content_hash(str(tmp_path / "a.gguf")) == content_hash(str(tmp_path / "b.gguf"))


@pytest.mark.parametrize("ignored", ["README.md", ".cache", "model.lock", "plot.png"])
def test_what_does_not_change_a_server_is_ignored(tmp_path: Path, ignored: str) -> None:
    before = content_hash(model(tmp_path, config__json=b"{}"))
    (tmp_path / ignored).write_bytes(b"x")
    assert content_hash(str(tmp_path)) == before


def test_a_changed_small_file_is_seen(tmp_path: Path) -> None:
    before = content_hash(model(tmp_path, config__json=b'{"a": 1}'))
    assert content_hash(model(tmp_path, config__json=b'{"a": 2}')) != before


@pytest.mark.parametrize("changed", [0, 1, 2, 3])
def test_any_changed_tensor_of_a_large_checkpoint_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: int
) -> None:
    """A vocabulary map in the middle may be all that differs between two drafts."""
    monkeypatch.setattr(content, "_WHOLE", 1000)
    monkeypatch.setattr(content, "_END", 64)
    monkeypatch.setattr(content, "_PIECES", 2)
    monkeypatch.setattr(content, "_PIECE", 16)
    tensors = {f"t{i}": bytes([i]) * 50_000 for i in range(4)}
    file = tmp_path / "model.safetensors"
    file.write_bytes(safetensors(tensors))
    before = content_hash(str(tmp_path))
    tensors[f"t{changed}"] = b"\xff" * 100 + tensors[f"t{changed}"][100:]
    file.write_bytes(safetensors(tensors))
    assert content_hash(str(tmp_path)) != before


def test_a_large_file_of_another_kind_or_a_broken_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "_WHOLE", 1000)
    for name in ("model.gguf", "model.safetensors"):
        (tmp_path / name).write_bytes(b"\xff" * 300_000)
        before = content_hash(str(tmp_path / name))
        (tmp_path / name).write_bytes(b"\xff" * 299_999 + b"\0")
        assert content_hash(str(tmp_path / name)) != before
