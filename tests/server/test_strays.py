"""A dead tuner's servers are found and stopped; nobody else's are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tuner.errors import HostError
from tuner.server import ports, procfs, strays
from tuner.server.command import LaunchCommand
from tuner.server.launch_record import LaunchRecord, Owner, read_record, record_path
from tuner.server.process import ServerProcess
from tuner.server.strays import find_strays, stop_strays

Start = Callable[..., ServerProcess]

TUNER = """
import os, sys, time
from pathlib import Path
from tuner.server import ports
from tuner.server.command import LaunchCommand
from tuner.server.process import ServerProcess
server = ServerProcess.launch(
    LaunchCommand((sys.executable, "-S", "-c", '''
import os, signal, subprocess, sys, time
child = "import signal,time;signal.signal(15,signal.SIG_IGN);print(1,flush=True);time.sleep(60)"
held = subprocess.Popen([sys.executable, "-S", "-c", child], start_new_session=True, stdout=-1)
held.stdout.readline()
print("up", held.pid, flush=True)
time.sleep(60)
''')), port=ports.free_port(), log_path=Path(sys.argv[1]) / "server.log", label="study:4")
while "up" not in server.log_tail():
    time.sleep(0.01)
print(server.log_tail().split()[1], flush=True)
os.kill(server.target.supervisor.pid, 9)
os.kill(os.getpid(), 9)
"""


def deny(descriptor: int, number: int) -> None:
    raise PermissionError(1, "Operation not permitted")


def dead_owner() -> Owner:
    with subprocess.Popen(["sleep", "60"]) as process:
        stat = procfs.read_stat(process.pid)
        process.kill()
    assert stat is not None
    return replace(Owner.me(), pid=stat.id.pid, start_ticks=stat.id.start_ticks)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that carries no marker at all."""
    with subprocess.Popen(["sleep", "60"], env={}, start_new_session=True) as process:
        yield process
        process.kill()


def record_of(process: subprocess.Popen[bytes], folder: Path, owner: Owner) -> Path:
    stat = procfs.read_stat(process.pid)
    assert stat is not None
    record = LaunchRecord("study:1:abc", 8000, owner, process.pid, stat.id.start_ticks)
    path = folder / "trials" / "1" / "server.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record.write(path)
    return path


def pids(found: list[strays.Stray]) -> set[int]:
    return {stat.id.pid for stray in found for stat in stray.processes}


def test_a_survivor_of_a_killed_tuner_is_found_and_stopped(
    fake_server: Start, tmp_path: Path
) -> None:
    mine = fake_server({"worker": True})
    folder = tmp_path / "trials" / "4"
    tuner = LaunchCommand(
        (sys.executable, "-c", TUNER, str(folder)), {"PYTHONPATH": str(Path.cwd())}
    )
    outer = ServerProcess.launch(tuner, port=ports.free_port(), log_path=tmp_path / "outer.log")
    with outer:
        deadline = time.monotonic() + 20
        while outer.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        survivor = int(outer.log_tail())
        assert procfs.identify(survivor) is not None
        found = [s for s in find_strays([tmp_path]) if s.marker.startswith("study:4:")]
        assert survivor in pids(found)
        assert not pids(found) & {s.id.pid for s in mine.members()}
        assert str(found[0]).startswith("server study:4 of dead tuner ")
        stop_strays(found, grace_s=0.3)
        assert procfs.identify(survivor) is None
        stored = read_record(folder / "server.json")
        assert stored is not None
        assert stored.stopped
        assert [s for s in find_strays([tmp_path]) if s.marker == found[0].marker] == []
    assert mine.poll() is None


def test_a_recorded_process_without_marker_is_found(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    path = record_of(sleeper, tmp_path, dead_owner())
    found = [s for s in find_strays([tmp_path]) if s.record_path == path]
    assert pids(found) == {sleeper.pid}
    stop_strays(found, grace_s=5)
    assert sleeper.wait(5) == -15


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"boot_id": "another boot"},
        {"pid_namespace": "pid:[1]"},
    ],
    ids=["alive", "boot", "namespace"],
)
def test_servers_of_living_or_unknown_tuners_are_no_strays(
    sleeper: subprocess.Popen[bytes], tmp_path: Path, change: dict[str, str]
) -> None:
    owner = replace(dead_owner() if change else Owner.me(), **change)
    record_of(sleeper, tmp_path, owner)
    assert sleeper.pid not in pids(find_strays([tmp_path]))


def test_a_reused_pid_or_a_stopped_server_is_no_stray(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    path = record_of(sleeper, tmp_path, dead_owner())
    record = read_record(path)
    assert record is not None
    for other in (replace(record, start_ticks=1), replace(record, stopped=True)):
        other.write(path)
        assert sleeper.pid not in pids(find_strays([tmp_path]))


def test_torn_foreign_and_missing_records_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text('{"marker": "x", "own')
    (tmp_path / "a.server.json").write_text(json.dumps({"owner": {}, "pid": 1}))
    (tmp_path / "b.server.json").write_text("[]")
    assert [s for s in find_strays([tmp_path, tmp_path / "absent"]) if s.record_path] == []


def test_what_cannot_be_stopped_makes_the_host_unusable(
    sleeper: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = record_of(sleeper, tmp_path, dead_owner())
    found = [s for s in find_strays([tmp_path]) if s.record_path == path]
    monkeypatch.setattr(strays, "_FORCE_S", 0.1)
    monkeypatch.setattr(signal, "pidfd_send_signal", deny)
    with pytest.raises(HostError, match=str(sleeper.pid)) as caught:
        stop_strays(found, grace_s=0.1)
    assert caught.value.exit_code == 3


def test_a_record_survives_its_round_trip(tmp_path: Path) -> None:
    record = LaunchRecord.new("s:1", 8000, "/bin/x")
    record.write(tmp_path / "server.json")
    assert read_record(tmp_path / "server.json") == record
    assert asdict(record)["owner"]["pid"] == os.getpid()
    assert Owner.from_env(record.env["TUNER_OWNER"]) == record.owner == Owner.me()
    assert not record.owner.is_dead
    assert Owner.from_env("nonsense") is None
    assert Owner.from_env("a:b:c:d") is None


def test_records_lie_beside_their_logs() -> None:
    assert record_path(Path("x/server.log")) == Path("x/server.json")
    assert record_path(Path("x/r1.log")) == Path("x/r1.server.json")


def test_a_record_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    LaunchRecord.new("s", 1, "x").write(tmp_path / "absent" / "server.json")


def test_whoever_runs_us_is_no_stray_whatever_it_inherited(tmp_path: Path) -> None:
    """A tuner started from within a server of a tuner that has died meanwhile."""
    owner = dead_owner()
    program = (
        "from tuner.server.strays import find_strays\n"
        "import os\n"
        "found = {s.id.pid for x in find_strays([]) for s in x.processes}\n"
        "print(os.getpid() in found, os.getppid() in found)"
    )
    env = {**os.environ, "TUNER_SERVER": "study:1:inherited", "TUNER_OWNER": owner.to_env()}
    shell = ["sh", "-c", 'python="$1"; shift; "$python" -c "$@"; true', "-", sys.executable]
    answer = subprocess.run(
        [*shell, program], env=env, capture_output=True, text=True, timeout=30, check=True
    )
    assert answer.stdout == "False False\n"
