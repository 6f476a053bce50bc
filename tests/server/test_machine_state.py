"""Free space before a launch, and shared memory after it."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from tuner.errors import HostError
from tuner.server import shared_memory
from tuner.server.headroom import Headroom, read_headroom, require_headroom

GIB = 1 << 30
PLENTY = Headroom(memory=8 * GIB, shared_memory=GIB, disk=GIB)


def test_plenty_is_enough(tmp_path: Path) -> None:
    assert require_headroom(tmp_path, read=lambda results: PLENTY) is PLENTY
    no_shm = Headroom(8 * GIB, None, GIB)
    assert require_headroom(tmp_path, read=lambda results: no_shm) is no_shm


@pytest.mark.parametrize(
    ("free", "text"),
    [
        (Headroom(GIB, 1 << 20, GIB), "/dev/shm: at least 64 MiB must be free .* got 1 MiB"),
        (Headroom(1 << 20, GIB, GIB), "memory: at least 256 MiB must be free .* got 1 MiB"),
        (Headroom(GIB, GIB, 0), "at least 64 MiB must be free .* got 0 MiB"),
    ],
)
def test_too_little_of_anything_is_a_host_error(tmp_path: Path, free: Headroom, text: str) -> None:
    with pytest.raises(HostError, match=text) as caught:
        require_headroom(tmp_path, read=lambda results: free)
    assert caught.value.hint


def test_the_real_machine_is_read(tmp_path: Path) -> None:
    free = read_headroom(tmp_path / "not" / "yet" / "there")
    assert free.memory > 0
    assert free.disk > 0
    assert read_headroom(tmp_path, shm=tmp_path / "absent").shared_memory is None


def test_only_new_unheld_segments_of_the_server_go(tmp_path: Path) -> None:
    (tmp_path / "sglang_old").write_bytes(b"x")
    before = shared_memory.segments(tmp_path)
    for name in ("sglang_new", "held_by_server", "stranger"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "nccl-folder").mkdir()
    removed = shared_memory.remove_leftovers(
        before, frozenset({"held_by_server"}), folder=tmp_path
    )
    assert removed == ["held_by_server", "sglang_new"]
    assert shared_memory.segments(tmp_path) == {"sglang_old", "stranger", "nccl-folder"}


def test_a_segment_in_use_stays(tmp_path: Path) -> None:
    before = shared_memory.segments(tmp_path)
    (tmp_path / "psm_open").write_bytes(b"x" * 4096)
    (tmp_path / "psm_mapped").write_bytes(b"x" * 4096)
    with (tmp_path / "psm_mapped").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 4096)
    with (tmp_path / "psm_open").open("rb"), mapped:
        held = shared_memory.held_by([os.getpid()], tmp_path)
        assert held == {"psm_open", "psm_mapped"}
        assert shared_memory.remove_leftovers(before, held, folder=tmp_path) == []
    assert shared_memory.remove_leftovers(before, held, folder=tmp_path) == sorted(held)


def test_a_machine_without_shared_memory(tmp_path: Path) -> None:
    assert shared_memory.segments(tmp_path / "absent") == frozenset()
