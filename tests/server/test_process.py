"""A server is launched in its own session, logged, decoded and stopped for certain."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.engines.base import Failure
from tuner.errors import FailureKind, TrialFailure
from tuner.server import ports, procfs
from tuner.server.command import LaunchCommand
from tuner.server.process import ServerProcess, build_env
from tuner.server.readiness import exit_failure

Start = Callable[..., ServerProcess]


def run(tmp_path: Path, program: str, **env: str | None) -> ServerProcess:
    return ServerProcess.launch(
        LaunchCommand((sys.executable, "-S", "-c", program), env),
        port=ports.free_port(),
        log_path=tmp_path / "server.log",
        label="study:7",
    )


def wait_exit(server: ServerProcess) -> int:
    code = server.wait(10.0)
    assert code is not None, "the server did not exit"
    return code


def test_it_runs_in_its_own_session_without_terminal_or_cores(tmp_path: Path) -> None:
    program = (
        "import os,resource,signal,sys; print(os.getpid()==os.getsid(0)==os.getpgid(0),"
        " os.isatty(0), resource.getrlimit(resource.RLIMIT_CORE),"
        " signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,"
        " sorted(os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd')))"
    )
    with run(tmp_path, program) as server:
        assert wait_exit(server) == 0
        assert server.log_tail() == "True False (0, 0) True ['0', '1', '2'] 4\n"
        assert os.getsid(0) != server.pid


def test_environment_is_a_fresh_snapshot_with_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    monkeypatch.setenv("REMOVED", "no")
    before = dict(os.environ)
    program = "import os; e=os.environ; print(e.get('FOO'), e.get('INHERITED'), e.get('REMOVED'))"
    with run(tmp_path, program, FOO="bar", REMOVED=None) as server:
        wait_exit(server)
        assert server.log_tail() == "bar yes None\n"
    with run(tmp_path, program) as server:
        wait_exit(server)
        assert server.log_tail() == "None yes no\n"
    assert dict(os.environ) == before


def test_build_env_does_not_touch_ours() -> None:
    env = build_env({"TUNER_X": "1", "PATH": None})
    assert env["TUNER_X"] == "1"
    assert "PATH" not in env
    assert "PATH" in os.environ


def test_a_missing_program_is_a_launch_crash(tmp_path: Path) -> None:
    with pytest.raises(TrialFailure, match="no-such-program cannot be started") as caught:
        ServerProcess.launch(
            LaunchCommand(("/nowhere/no-such-program",)),
            port=ports.free_port(),
            log_path=tmp_path / "server.log",
        )
    assert caught.value.kind is FailureKind.LAUNCH_CRASH


@pytest.mark.parametrize(
    ("program", "code", "reason"),
    [
        ("import sys; print('ValueError: no such backend'); sys.exit(3)", 3,
         "exited with code 3: ValueError: no such backend"),
        ("import os; os.abort()", -signal.SIGABRT, "killed by SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, "killed by SIGKILL"),
        ("pass", 0, "exited with code 0"),
    ],
)  # fmt: skip
def test_exits_are_decoded(tmp_path: Path, program: str, code: int, reason: str) -> None:
    with run(tmp_path, program) as server:
        assert server.exit_reason() in ("", reason)
        assert wait_exit(server) == code
        assert server.exit_reason() == reason


def test_a_kill_by_the_kernel_for_lack_of_memory_is_named(tmp_path: Path) -> None:
    with run(tmp_path, "import os; os.kill(os.getpid(), 9)") as server:
        server._oom_kills_before -= 1  # as if the kernel's count had grown since the launch
        assert server.wait(10) == -signal.SIGKILL
        assert server.is_oom_killed
        assert server.exit_reason() == "killed by SIGKILL (the kernel ran out of memory)"
        failure = exit_failure(server, lambda code, log: Failure(FailureKind.LAUNCH_CRASH, "?"))
        assert failure is not None
        assert failure.kind is FailureKind.OUT_OF_MEMORY
    with run(tmp_path, "import os; os.kill(os.getpid(), 9)") as server:
        assert server.wait(10) == -signal.SIGKILL
        assert not server.is_oom_killed


def test_the_log_is_complete_when_the_exit_is_seen(tmp_path: Path) -> None:
    with run(tmp_path, "print('x' * 200_000); print('the end')") as server:
        wait_exit(server)
        assert server.log_tail().endswith("the end\n")


def test_server_json_names_the_launch(tmp_path: Path) -> None:
    with run(tmp_path, "import time; time.sleep(60)") as server:
        record = json.loads((tmp_path / "server.json").read_text())
        assert record["pid"] == server.pid
        assert record["port"] == server.port
        assert record["owner"]["pid"] == os.getpid()
        assert record["owner"]["boot_id"] == procfs.boot_id()
        assert record["marker"].startswith("study:7:")
        assert record["stopped"] is False
        environ = procfs.read_environ(server.pid)
        assert environ is not None
        assert environ["TUNER_SERVER"] == record["marker"] == server.marker
    assert json.loads((tmp_path / "server.json").read_text())["stopped"] is True


def test_stop_is_polite_first_and_idempotent(tmp_path: Path) -> None:
    program = (
        "import signal,sys,time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(0)))\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    server = run(tmp_path, program)
    while "up" not in server.log_tail():
        time.sleep(0.005)
    report = server.stop()
    assert report.how == "terminated"
    assert report.seconds < 5
    assert server.stop() is report
    assert server.poll() == 0
    assert server.log_tail() == "up\nbye\n"


def test_stop_ends_a_stopped_server_and_one_whose_supervisor_is_stopped(tmp_path: Path) -> None:
    server = run(tmp_path, "import time; time.sleep(60)")
    supervisor = server.target.supervisor
    os.kill(server.pid, signal.SIGSTOP)
    os.kill(supervisor.pid, signal.SIGSTOP)
    assert server.stop(grace_s=5).seconds < 5
    assert server.poll() == -signal.SIGTERM


def test_a_killed_supervisor_takes_the_server_along(tmp_path: Path) -> None:
    with run(tmp_path, "import time; time.sleep(60)") as server:
        os.kill(server.target.supervisor.pid, signal.SIGKILL)
        assert wait_exit(server) == -signal.SIGKILL
    assert not procfs.is_alive(server.target.server)


def test_an_exception_in_the_block_stops_the_server(tmp_path: Path) -> None:
    with pytest.raises(KeyError), run(tmp_path, "import time; time.sleep(60)") as server:
        raise KeyError("x")
    assert server.poll() == -signal.SIGTERM


def test_losing_the_object_ends_the_server(tmp_path: Path) -> None:
    server = run(tmp_path, "import time; time.sleep(60)")
    target = server.target
    server._link.release()
    assert not procfs.is_alive(target.server)
    server.stop()


def test_the_thread_that_launched_may_end(tmp_path: Path) -> None:
    """A parent-death signal of the server itself would follow the thread."""
    servers: list[ServerProcess] = []
    program = "import time; time.sleep(60)"
    thread = threading.Thread(target=lambda: servers.append(run(tmp_path, program)))
    thread.start()
    thread.join()
    with servers[0] as server:
        assert server.wait(0.3) is None
        assert procfs.is_alive(server.target.server)


def test_a_deleted_results_folder_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    program = "import time, sys\nfor _ in iter(int, 1): print('x' * 999); time.sleep(0.001)"
    server = run(folder, program)
    shutil.rmtree(folder)
    assert server.log_tail() == ""
    assert server.stop().how == "terminated"
    assert server.exit_reason() == "killed by SIGTERM"
    assert not folder.exists()


def test_many_launches_leak_no_descriptors(tmp_path: Path) -> None:
    def one_launch() -> int:
        run(tmp_path, "pass").stop()
        return len(list(Path("/proc/self/fd").iterdir()))

    first = one_launch()
    assert [one_launch() for _ in range(8)] == [first] * 8


@pytest.mark.timeout(30)
def test_a_killed_tuner_leaves_no_server(tmp_path: Path) -> None:
    tuner = (
        "import os,sys\nfrom pathlib import Path\n"
        "from tuner.server.process import ServerProcess\n"
        "from tuner.server.command import LaunchCommand\n"
        "s=ServerProcess.launch(LaunchCommand((sys.executable,'-c','import time;time.sleep(60)')),"
        f"port={ports.free_port()},log_path=Path({str(tmp_path)!r})/'inner'/'server.log')\n"
        "print(s.pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    with run(tmp_path, tuner, PYTHONPATH=str(Path.cwd())) as outer:
        assert wait_exit(outer) == -signal.SIGKILL
        inner = procfs.identify(int(outer.log_tail()))
        deadline = time.monotonic() + 10
        while inner is not None and procfs.is_alive(inner):
            assert time.monotonic() < deadline
            time.sleep(0.01)
