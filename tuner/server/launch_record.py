"""Owns what is written down about a launch: the marker variables and `server.json`.

Both say the same thing twice, so that a server whose tuner died can be recognised without doubt:
which tuner (pid, start tick, boot, pid namespace) and which server (pid, start tick, port).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tuner.server import procfs
from tuner.server.procfs import ProcessId

MARKER = "TUNER_SERVER"
OWNER = "TUNER_OWNER"


@dataclass(frozen=True, slots=True)
class Owner:
    """The tuner process that owns a server."""

    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: str

    @classmethod
    def me(cls) -> Owner:
        """This process."""
        stat = procfs.read_stat(os.getpid())
        ticks = stat.id.start_ticks if stat is not None else 0
        return cls(os.getpid(), ticks, procfs.boot_id(), procfs.pid_namespace())

    def to_env(self) -> str:
        """One environment value; inverse of `from_env`."""
        return f"{self.pid}:{self.start_ticks}:{self.boot_id}:{self.pid_namespace}"

    @classmethod
    def from_env(cls, text: str) -> Owner | None:
        """The owner named by an environment value, or None when it is not one."""
        parts = text.split(":", 3)
        if len(parts) != 4 or not (parts[0].isdigit() and parts[1].isdigit()):
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2], parts[3])

    @property
    def is_here(self) -> bool:
        """True when its pid means something to us: same boot, same pid namespace."""
        return (self.boot_id, self.pid_namespace) == (procfs.boot_id(), procfs.pid_namespace())

    @property
    def is_dead(self) -> bool:
        """True when it is certain that this tuner no longer runs on this machine."""
        return self.is_here and not procfs.is_alive(ProcessId(self.pid, self.start_ticks))


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One launch, as stored in `server.json` beside its log. `stopped`: its end was verified."""

    marker: str
    port: int
    owner: Owner
    pid: int = 0
    start_ticks: int = 0
    supervisor_pid: int = 0
    supervisor_start_ticks: int = 0
    program: str = ""
    stopped: bool = False

    @classmethod
    def new(cls, label: str, port: int, program: str) -> LaunchRecord:
        """A record of a launch about to happen, with a fresh marker `label:token`.

        Only the program is kept of the command: arguments may hold secrets.
        """
        marker = f"{label or 'server'}:{secrets.token_hex(8)}"
        return cls(marker=marker, port=port, owner=Owner.me(), program=program)

    @property
    def env(self) -> dict[str, str]:
        """The variables that mark every process of the server."""
        return {MARKER: self.marker, OWNER: self.owner.to_env()}

    def started(self, server: ProcessId, supervisor: ProcessId) -> LaunchRecord:
        """The record once both processes exist."""
        return replace(
            self,
            pid=server.pid,
            start_ticks=server.start_ticks,
            supervisor_pid=supervisor.pid,
            supervisor_start_ticks=supervisor.start_ticks,
        )

    def write(self, path: Path) -> None:
        """Store atomically; a full or vanished disk is no reason to lose the server's control."""
        draft = path.with_name(path.name + ".new")
        with contextlib.suppress(OSError):
            draft.write_text(json.dumps(asdict(self), indent=1) + "\n")
            draft.replace(path)


def record_path(log_path: Path) -> Path:
    """`server.json` for `server.log`, `X.server.json` for any other `X.log`."""
    name = "server.json" if log_path.stem == "server" else f"{log_path.stem}.server.json"
    return log_path.with_name(name)


def read_record(path: Path) -> LaunchRecord | None:
    """The record in a file; None when the file is not one (torn, foreign, unreadable)."""
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        owner = Owner(**data.pop("owner"))
        return LaunchRecord(owner=owner, **data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
