"""Raw files: whole or not there, and readable again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.errors import StoreError
from tuner.measure.records import Block
from tuner.store.files import file_errors, write_atomic, write_text
from tuner.store.record import ConfirmationLaunch, TrialRecord
from tuner.store.results import ResultsFolder


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path / "demo")


def test_a_trial_comes_back_equal(
    folder: ResultsFolder,
    make_record: Callable[..., TrialRecord],
    make_block: Callable[..., Block],
) -> None:
    blocks = [make_block(0), make_block(1, text="日本")]
    folder.write_trial(make_record(7), blocks)
    assert folder.read_trial(7) == make_record(7)
    assert folder.read_blocks(7) == blocks
    assert folder.trial_numbers() == [7]
    names = sorted(path.name for path in (folder.root / "trials/0007").iterdir())
    assert names == ["blocks.jsonl.gz", "record.json"]


def test_a_trial_that_never_finished_is_none(folder: ResultsFolder) -> None:
    folder.trial_folder(3)
    assert folder.read_trial(3) is None
    assert folder.read_blocks(4) == []
    assert folder.trial_numbers() == []


def test_a_confirmation_comes_back_equal(
    folder: ResultsFolder, make_block: Callable[..., Block]
) -> None:
    launches = [
        ConfirmationLaunch(round=0, order=order, trial=5, digest="d", value=3.0)
        for order in (0, 1, 12)
    ]
    for launch in reversed(launches):
        folder.write_confirmation(launch, [make_block(launch.order)])
    assert folder.confirmations() == launches
    assert folder.read_confirm_blocks(12) == [make_block(12)]


def test_generations_do_not_mix(
    folder: ResultsFolder, make_record: Callable[..., TrialRecord]
) -> None:
    second = ResultsFolder(folder.root, 2)
    folder.write_trial(make_record(0))
    second.write_trial(make_record(1))
    assert folder.trial_numbers() == [0]
    assert second.trial_numbers() == [1]
    assert second.study_db == folder.study_db


@pytest.mark.parametrize("content", [b"{", b'{"number": "x"}', b"\xff\xfe"])
def test_a_damaged_record_names_its_file(folder: ResultsFolder, content: bytes) -> None:
    path = folder.trial_folder(2) / "record.json"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=str(path)):
        folder.read_trial(2)


@pytest.mark.parametrize("content", [b"", b"not gzip", b"\x1f\x8b\x08\x00"])
def test_damaged_blocks_name_their_file(folder: ResultsFolder, content: bytes) -> None:
    path = folder.trial_folder(2) / "blocks.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=str(path)):
        folder.read_blocks(2)


def test_identity_says_whose_files_these_are(folder: ResultsFolder) -> None:
    assert folder.read_identity() is None
    folder.write_identity({"uid": "u", "n": float("nan")})
    assert folder.read_identity() == {"uid": "u", "n": None}


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep/er/file.txt"
    write_text(path, "old")
    write_text(path, "new")
    assert path.read_text() == "new"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.mkdir()  # a folder cannot be replaced by a file
    (path / "inside").touch()
    with pytest.raises(StoreError, match="taken"):
        write_atomic(path, b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "writable"),
        (errno.EIO, "Check that the folder"),
    ],
)
def test_every_refusal_says_what_to_do(tmp_path: Path, number: int, hint: str) -> None:
    with pytest.raises(StoreError, match=str(tmp_path)) as caught, file_errors(tmp_path):
        raise OSError(number, os.strerror(number))
    assert hint in caught.value.hint


def test_untimed_launches_have_folders_of_their_own(folder: ResultsFolder) -> None:
    assert folder.untimed_folder("nccl-1").relative_to(folder.base).parts == ("untimed", "nccl-1")
    assert folder.untimed_folder("nccl-1").is_dir()
    assert folder.trial_numbers() == []
