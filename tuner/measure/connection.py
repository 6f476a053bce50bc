"""Owns one non-blocking TCP connection to the server; knows bytes only."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
_CHUNK = 65536
_TIMESTAMPNS = 35  # SO_TIMESTAMPNS on Linux; the socket module does not name it
_STAMP_SPACE = socket.CMSG_SPACE(16)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens, and the path its routes start with."""

    host: str
    port: int
    prefix: str = ""

    @classmethod
    def parse(cls, base_url: str) -> Address:
        """The address of `http://host:port[/prefix]`; raises ValueError for anything else."""
        parts = urlsplit(base_url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"base_url: must be http://host:port, got {base_url!r}")
        return cls(parts.hostname, parts.port or 80, parts.path.rstrip("/"))


class Connection:
    """A connection that can be reused for the next request when an answer was complete.

    `is_reused` tells whether an earlier answer arrived on it: the server may have closed it
    meanwhile, which is no fault of the next request. Until it `is_connected` nothing was sent.
    """

    __slots__ = ("_epoll", "_pending", "_registered", "fd", "is_connected", "is_reused", "sock")

    def __init__(self, address: Address, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._registered = 0
        self._pending: memoryview = memoryview(b"")
        self.is_connected = False
        self.is_reused = False
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.fd = self.sock.fileno()
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, _TIMESTAMPNS, 1)
        code = self.sock.connect_ex((address.host, address.port))
        if code not in (0, errno.EINPROGRESS):
            self.sock.close()
            raise OSError(code, "cannot connect")

    def send(self, payload: bytes) -> None:
        """Begin sending; events come back under `fd`. Raises OSError."""
        self._pending = memoryview(payload)
        if self.is_connected:
            self._write()
        self._watch(READ | WRITE if self._pending or not self.is_connected else READ)

    def on_event(self) -> None:
        """Finish connecting, send what is left: for events other than `READ`. Raises OSError."""
        if not self.is_connected:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, "cannot connect")
            self.is_connected = True
        self._write()
        if not self._pending:
            self._watch(READ)

    def receive(self) -> tuple[bytes, bytes]:
        """Bytes that have arrived, and the kernel's stamp of their arrival (b"": it gave none).

        No bytes mean that the peer has closed. Raises BlockingIOError when nothing is there,
        another OSError when the connection is broken.
        """
        data, notes, _, _ = self.sock.recvmsg(_CHUNK, _STAMP_SPACE)
        if notes:
            _, kind, stamp = notes[0]
            if kind == _TIMESTAMPNS and len(stamp) == 16:
                return data, stamp
        return data, b""

    def rest(self) -> None:
        """Stop watching an idle connection."""
        self.is_reused = True
        self._watch(0)

    def is_stale(self) -> bool:
        """True when an idle connection was closed by the peer, or holds unexpected bytes."""
        try:
            self.sock.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        """Close; idempotent."""
        self._watch(0)
        self.sock.close()

    def _write(self) -> None:
        while self._pending:
            try:
                sent = self.sock.send(self._pending)
            except BlockingIOError:
                return
            self._pending = self._pending[sent:]

    def _watch(self, mask: int) -> None:
        if mask and self._registered:
            self._epoll.modify(self.fd, mask)
        elif mask:
            self._epoll.register(self.fd, mask)
        elif self._registered:
            self._epoll.unregister(self.fd)
        self._registered = mask
