"""One tuner per results folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.errors import HostError
from tuner.store.lock import lock_owner, run_lock

HOLD = """
import sys
from pathlib import Path
from tuner.store.lock import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_second_tuner_is_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with hold(path) as child:
        with pytest.raises(HostError, match=f"pid {child.pid} on ") as caught, run_lock(path):
            pass
        assert "resume" in caught.value.hint
        child.communicate()
    with run_lock(path):
        owner = lock_owner(path)
        assert owner is not None
        assert owner.pid == os.getpid()


def test_a_killed_tuner_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with hold(path) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
        with run_lock(path):
            pass


def test_workers_share_it_and_exclude_a_single_tuner(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    shared = run_lock(path, shared=True)
    with shared, run_lock(path, shared=True), pytest.raises(HostError), run_lock(path):
        pass


def test_a_garbled_lock_file_still_locks(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    path.write_text("not json")
    assert lock_owner(path) is None
    with run_lock(path):
        assert lock_owner(path) is not None


def test_the_lock_is_not_inherited_by_a_server(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with run_lock(path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child, run_lock(path):
        child.communicate(b"\n")
