"""Owns TCP ports of this machine: finding a free one, and who listens on one."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections import deque
from collections.abc import Collection
from pathlib import Path

from tuner.errors import HostError
from tuner.server import procfs

HOST = "127.0.0.1"
_LISTEN = "0A"
_LOWEST = 20_000
_ENOUGH = 2_000
_RECENT: deque[int] = deque(maxlen=256)
_LOCK = threading.Lock()


def free_port() -> int:
    """A port nothing is bound to, that this process has not handed out recently.

    It lies outside the kernel's range for outgoing connections where there is room: a server
    that binds only after minutes of loading must not find that some client was given its port.
    A port handed out before is avoided because the last server's connections may linger on it.

    Raises:
        HostError: the machine has no free port.
    """
    with _LOCK:
        for _ in range(512):
            port = _choose()
            if port not in _RECENT and not listening_inodes(port) and is_free(port):
                _RECENT.append(port)
                return port
    raise HostError(
        "ports: a free TCP port must exist on 127.0.0.1, got none in 512 attempts.",
        "Stop servers that are no longer needed, or widen net.ipv4.ip_local_port_range.",
    )


def _choose() -> int:
    low, _ = ephemeral_range()
    if low - _LOWEST >= _ENOUGH:
        return random.SystemRandom().randrange(_LOWEST, low)  # other tuners must differ
    return _kernel_choice()


def ephemeral_range() -> tuple[int, int]:
    """The ports the kernel gives to outgoing connections."""
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 0, 0


def _kernel_choice() -> int:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, 0))
        except OSError:
            return 0
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """True when a server could bind the port now.

    SO_REUSEADDR is set as servers set it: connections of a finished server in TIME_WAIT do not
    make a port taken, a listener does.
    """
    if not 0 < port < 65536:
        return False
    for host in (HOST, ""):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True


def listening_inodes(port: int) -> set[str]:
    """Socket inodes that listen on the port, on any local address, IPv4 and IPv6."""
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            lines = Path("/proc/self/net", table).read_text().splitlines()[1:]
            for fields in (line.split() for line in lines):
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found


def owner_pids(port: int, among: Collection[int] | None = None) -> set[int]:
    """Processes that hold a listening socket on the port.

    Args:
        port: the TCP port.
        among: only these pids are looked at (fast); None: every process that may be inspected.
    """
    inodes = listening_inodes(port)
    if not inodes:
        return set()
    pids = [s.id.pid for s in procfs.all_processes()] if among is None else among
    return {pid for pid in pids if procfs.socket_inodes(pid) & inodes}


def foreign_listeners(port: int, ours: Collection[int]) -> set[str]:
    """Inodes of listening sockets on the port that none of `ours` holds."""
    foreign = listening_inodes(port)
    for pid in ours:
        if not foreign:
            break
        foreign -= procfs.socket_inodes(pid)
    return foreign
