"""Owns one non-blocking TCP connection to the server; knows bytes only."""

from __future__ import annotations

import errno
import selectors
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE
_CHUNK = 16384


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
    meanwhile, which is no fault of the next request.
    """

    __slots__ = ("_is_connected", "_pending", "_registered", "_selector", "is_reused", "sock")

    def __init__(self, address: Address, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._registered = 0
        self._pending: memoryview = memoryview(b"")
        self._is_connected = False
        self.is_reused = False
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self.sock.connect_ex((address.host, address.port))
        if code not in (0, errno.EINPROGRESS):
            self.sock.close()
            raise OSError(code, "cannot connect")

    def send(self, payload: bytes, owner: object) -> None:
        """Begin sending; events of this connection come back with `owner`. Raises OSError."""
        self._pending = memoryview(payload)
        if self._is_connected:
            self._write()
        self._watch(READ | WRITE if self._pending or not self._is_connected else READ, owner)

    def on_writable(self, owner: object) -> None:
        """Finish connecting, send what is left. Raises OSError."""
        if not self._is_connected:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, "cannot connect")
            self._is_connected = True
        self._write()
        if not self._pending:
            self._watch(READ, owner)

    def receive(self) -> bytes | None:
        """Bytes that have arrived; b"" when the peer closed, None when nothing is there.

        Raises OSError when the connection is broken.
        """
        try:
            return self.sock.recv(_CHUNK)
        except BlockingIOError:
            return None

    def rest(self) -> None:
        """Stop watching an idle connection."""
        self.is_reused = True
        self._watch(0, None)

    def is_stale(self) -> bool:
        """True when an idle connection was closed by the peer, or holds unexpected bytes."""
        try:
            return self.receive() is not None
        except OSError:
            return True

    def close(self) -> None:
        """Close; idempotent."""
        self._watch(0, None)
        self.sock.close()

    def _write(self) -> None:
        while self._pending:
            try:
                sent = self.sock.send(self._pending)
            except BlockingIOError:
                return
            self._pending = self._pending[sent:]

    def _watch(self, mask: int, owner: object) -> None:
        if mask and self._registered:
            self._selector.modify(self.sock, mask, owner)
        elif mask:
            self._selector.register(self.sock, mask, owner)
        elif self._registered:
            self._selector.unregister(self.sock)
        self._registered = mask
