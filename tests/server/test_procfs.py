"""Processes are identified by pid and start, and never confused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tuner.server import procfs
from tuner.server.procfs import ProcessId, ProcessStat


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "MARKED": "a=b"}
    with subprocess.Popen(["sleep", "60"], env=env) as process:
        yield process
        process.kill()


def stat(pid: int, parent: int) -> ProcessStat:
    return ProcessStat(ProcessId(pid, 1), "x", "S", parent, pid, pid, 0, 0.0, 0)


def test_our_own_stat() -> None:
    me = procfs.read_stat(os.getpid())
    assert me is not None
    assert me.parent == os.getppid()
    assert me.group == os.getpgid(0)
    assert me.session == os.getsid(0)
    assert me.is_alive
    assert me.rss_bytes > 1 << 20


def test_there_is_no_such_process() -> None:
    assert procfs.read_stat(2**22 + 1) is None
    assert procfs.identify(2**22 + 1) is None
    assert procfs.read_environ(2**22 + 1) is None
    assert procfs.read_cmdline(2**22 + 1) == ""
    assert procfs.open_files(2**22 + 1) == []


def test_a_name_with_parentheses_and_spaces_is_read() -> None:
    program = "open('/proc/self/comm','w').write('a) (b c'); print(1, flush=True); input()"
    argv = [sys.executable, "-S", "-c", program]
    with subprocess.Popen(argv, stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = procfs.read_stat(process.pid)
        process.kill()
    assert found is not None
    assert (found.name, found.parent) == ("a) (b c", os.getpid())


def test_a_zombie_is_not_alive(child: subprocess.Popen[bytes]) -> None:
    identity = procfs.identify(child.pid)
    assert identity is not None
    assert procfs.is_alive(identity)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert procfs.read_stat(child.pid) is not None
    assert not procfs.is_alive(identity)


def test_environment_and_command_of_another_process(child: subprocess.Popen[bytes]) -> None:
    environ = procfs.read_environ(child.pid)
    assert environ is not None
    assert environ["MARKED"] == "a=b"
    assert procfs.read_cmdline(child.pid) == "sleep 60"


def test_a_signal_reaches_exactly_the_process(child: subprocess.Popen[bytes]) -> None:
    identity = procfs.identify(child.pid)
    assert identity is not None
    other_start = ProcessId(identity.pid, identity.start_ticks + 1)
    assert not procfs.send_signal(other_start, signal.SIGKILL)
    assert child.poll() is None
    assert procfs.send_signal(identity, signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL
    assert not procfs.send_signal(identity, signal.SIGKILL)


@pytest.mark.parametrize("pid", [0, 1, -1, None], ids=["0", "init", "all", "ourselves"])
def test_some_processes_are_never_signalled(pid: int | None) -> None:
    pid = os.getpid() if pid is None else pid
    start = procfs.identify(pid) if pid > 0 else None
    identity = start or ProcessId(pid, 0)
    assert not procfs.send_signal(identity, signal.SIGTERM)


def test_a_family_is_everything_below() -> None:
    processes = [stat(4, 3), stat(2, 1), stat(3, 2), stat(9, 8), stat(5, 2)]
    assert [s.id.pid for s in procfs.family(1, processes)] == [2, 3, 5, 4]
    assert procfs.family(9, processes) == []


def test_a_circle_of_parents_ends() -> None:
    assert len(procfs.family(1, [stat(1, 2), stat(2, 1)])) == 2
