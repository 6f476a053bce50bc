"""A capped log keeps head and tail, says what is missing, and never grows beyond its cap."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.server.capped_log import CappedLog, read_tail


def test_a_short_log_is_whole(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "log", 10_000)
    log.write(b"one\n")
    log.write(b"two\n")
    log.close()
    log.close()
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def test_the_middle_is_dropped(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "log", 8192)
    for number in range(5000):
        log.write(f"line {number}\n".encode())
    log.close()
    text = (tmp_path / "log").read_text()
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 4998\nline 4999\n")
    assert text.count("bytes dropped here: this log is capped at 8192 bytes") == 1
    assert len(text) <= 8192


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "log", 4096)
    log.write(b"x" * 100_000)
    log.close()
    text = (tmp_path / "log").read_text()
    dropped = int(text.partition("[... ")[2].partition(" bytes")[0])
    assert dropped + text.count("x") == 100_000
    assert len(text) <= 4096


@settings(max_examples=40, deadline=None)
@given(pieces=st.lists(st.integers(0, 6000), max_size=40))
def test_any_writes_keep_the_cap_and_the_end(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    log = CappedLog(path, 4096)
    written = b""
    for number, size in enumerate(pieces):
        data = bytes([65 + number % 26]) * size
        written += data
        log.write(data)
        assert path.stat().st_size <= 4096
    log.close()
    kept = path.read_bytes()
    assert kept == written if len(written) <= 4096 else kept[:1024] == written[:1024]
    assert kept[-1000:] == written[-1000:]


def test_a_disk_that_takes_nothing_loses_lines_only(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "log", 4096)
    log.write(b"before\n")
    os.close(log._file)
    log._file = os.open("/dev/full", os.O_RDWR)
    for _ in range(100):
        log.write(b"lost" * 100)
    log.close()
    assert (tmp_path / "log").read_bytes() == b"before\n"


def test_a_tail_of_something_absent_or_short(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "absent", 10) == ""
    (tmp_path / "log").write_bytes("grün".encode())
    assert read_tail(tmp_path / "log", 100) == "grün"
    assert read_tail(tmp_path / "log", 2) == "\ufffdn"
