"""Owns how a server is stopped for certain: politely, by force, then verified.

Works on one set of processes: the supervisor's descendants (it is their subreaper, so nothing
escapes by forking twice) and whatever carries the launch's marker. Processes are signalled one
by one through pidfds, never by group number: a group id may be reused, an identity may not.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tuner.errors import FailureKind, TrialFailure
from tuner.server import ports, procfs
from tuner.server.launch_record import MARKER
from tuner.server.procfs import ProcessId, ProcessStat

FORCE_S = 60.0
"""How long SIGKILL may take: unpinning host memory and freeing many GPUs takes its time."""
PORT_S = 45.0
"""How long a port may stay taken: more than 30 s have been seen after large servers."""
_LEFTOVER_GRACE_S = 3.0


@dataclass(frozen=True, slots=True)
class StopReport:
    """How a server was stopped: `how` is exited, terminated or killed."""

    seconds: float
    how: str


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be stopped: the server, its supervisor, its marker and its port."""

    server: ProcessId
    supervisor: ProcessId
    marker: str
    port: int

    def members(self) -> list[ProcessStat]:
        """Living processes of the server, whoever their parent and session are now."""
        everything = list(procfs.all_processes())
        roots = {self.server, self.supervisor}
        known = {stat.id: stat for stat in everything if stat.id in roots}
        for root in list(known):
            known |= {s.id: s for s in procfs.family(root.pid, everything)}
        known |= {s.id: s for s in everything if self._is_marked(s)}
        known.pop(self.supervisor, None)
        return [stat for stat in known.values() if stat.is_alive]

    def _is_marked(self, stat: ProcessStat) -> bool:
        if stat.id.start_ticks < self.server.start_ticks:
            return False
        environ = procfs.read_environ(stat.id.pid)
        return environ is not None and environ.get(MARKER) == self.marker


def stop(target: Target, grace_s: float) -> StopReport:
    """Stop every process of the server and prove it.

    SIGTERM goes to the server first, which ends its workers in its own order, and to whatever
    it leaves behind after that; when `grace_s` is over, SIGKILL to everything.

    Raises:
        TrialFailure: NOT_STOPPED, with what remains.
    """
    started = time.monotonic()
    how = _end_politely(target, grace_s)
    if target.members():
        how = "killed"
        _kill_all(target)
    _require_port_released(target)
    return StopReport(time.monotonic() - started, how)


def _end_politely(target: Target, grace_s: float) -> str:
    if not target.members():
        return "exited"
    deadline = time.monotonic() + grace_s
    _terminate(target.server)
    _wait(lambda: not procfs.is_alive(target.server), deadline)
    if not procfs.is_alive(target.server):
        for stat in target.members():
            _terminate(stat.id)
        _wait(lambda: not target.members(), min(deadline, time.monotonic() + _LEFTOVER_GRACE_S))
    return "terminated"


def _terminate(process: ProcessId) -> None:
    procfs.send_signal(process, signal.SIGTERM)
    # A stopped process (SIGSTOP, a debugger) acts on SIGTERM only once it continues.
    procfs.send_signal(process, signal.SIGCONT)


def _kill_all(target: Target) -> None:
    deadline = time.monotonic() + FORCE_S
    while members := target.members():
        for stat in members:
            procfs.send_signal(stat.id, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise _not_stopped(
                f"processes {_describe(members)} survived SIGKILL for {FORCE_S:g} s"
            )
        time.sleep(0.02)


def _require_port_released(target: Target) -> None:
    def is_released() -> bool:
        return not ports.listening_inodes(target.port) or _is_foreign(target)

    if not _wait(is_released, time.monotonic() + PORT_S):
        raise _not_stopped(f"port {target.port} is still listened on after {PORT_S:g} s")


def _is_foreign(target: Target) -> bool:
    """True when the port's listener is a process of somebody else: not ours to wait for."""
    owners = ports.owner_pids(target.port)
    return bool(owners) and not owners & {stat.id.pid for stat in target.members()}


def _wait(is_done: Callable[[], bool], deadline: float) -> bool:
    pause = 0.005
    while not is_done():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(0.1, pause * 1.5)
    return True


def _describe(members: list[ProcessStat]) -> str:
    return ", ".join(f"{s.id.pid} ({s.name}, state {s.state})" for s in members[:8])


def _not_stopped(reason: str) -> TrialFailure:
    return TrialFailure(
        FailureKind.NOT_STOPPED,
        reason,
        hint="End the processes named above (a process in state D waits for a driver; only a "
        "reboot may help), then run the same command to resume.",
    )
