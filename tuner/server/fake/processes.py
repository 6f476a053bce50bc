"""Owns what the fake server does to the machine: workers, detached children, leaks, traps."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tuner.server.fake.behaviour import Behaviour

_SLEEPER = "import time; time.sleep(600)"
_STUBBORN = (
    "import os, signal, time; os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    " time.sleep(600)"
)


def start_worker(behaviour: Behaviour) -> Callable[[], None]:
    """Start a worker with its own environment; returns what ends it."""
    env = dict(os.environ)
    for name, value in behaviour.worker_env.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    worker = _spawn(_SLEEPER, env)

    def end() -> None:
        worker.kill()
        worker.wait()

    return end


def start_surviving_child() -> None:
    """A child in a session of its own that ignores SIGTERM."""
    _spawn(_STUBBORN, dict(os.environ))


def hold_port_detached(listener: socket.socket) -> None:
    """Fork twice into a new session; the grandchild keeps the listening socket open."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while listener.fileno() >= 0:
        time.sleep(60)
    os._exit(0)


def leak_shared_memory(size: int) -> Path:
    """Create a segment of this size; whoever ends politely removes it."""
    path = Path(f"/dev/shm/tuner-fake-{os.getpid()}")
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # open until the process ends
    os.ftruncate(held, size)
    return path


def count_launch(folder: str, name: str = "launches") -> int:
    """How many launches this folder has seen, this one included; each name counts by itself."""
    path = Path(folder, name)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        count = int(file.read() or 0) + 1
        file.seek(0)
        file.truncate()
        file.write(str(count))
    return count


def write_nccl_log(text: str, environment: Mapping[str, str]) -> None:
    """What NCCL would log to NCCL_DEBUG_FILE: a line per variable that it read, then `text`."""
    name = environment.get("NCCL_DEBUG_FILE")
    if not (text and name and environment.get("NCCL_DEBUG") == "INFO"):
        return
    path = Path(name.replace("%h", "fake").replace("%p", str(os.getpid())))
    read = (
        f"{n} set by environment to {v}"
        for n, v in sorted(environment.items())
        if n.startswith("NCCL_") and not n.startswith("NCCL_DEBUG")
    )
    lines = [f"fake:1:1 [0] NCCL INFO {line}" for line in (*read, *text.splitlines())]
    path.write_text("\n".join(lines) + "\n")


def remove(path: Path | None) -> None:
    """Remove a segment, if there is one."""
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink()


def _spawn(program: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", program], env=env)
