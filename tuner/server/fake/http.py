"""Owns a small HTTP/1.1 server over asyncio: requests in, whole or streamed answers out.

Standard library only and without per-chunk overhead, so that it streams well above ten thousand
chunks per second; not a general web server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

_REASONS = {200: "OK", 404: "Not Found", 501: "Not Implemented", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `body` is the decoded JSON object, {} without one."""

    method: str
    path: str
    body: dict[str, Any]


class Reply:
    """Writes the answer to one request."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, status: int, body: str, content_type: str = "text/plain") -> None:
        """A whole answer."""
        data = body.encode()
        reason = _REASONS.get(status, "Status")
        head = (
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        await self._writer.drain()

    async def send_json(self, status: int, body: Any) -> None:
        """A whole answer as JSON (NaN written as NaN, as careless servers do)."""
        await self.send(status, json.dumps(body), "application/json")

    def begin_stream(self) -> None:
        """Start an event stream."""
        self._writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

    def event(self, data: str) -> None:
        """One server-sent event, written at once."""
        size = len(data) + 8  # "data: " and two line ends; the payload is ASCII
        self._writer.write(f"{size:x}\r\ndata: {data}\n\n\r\n".encode())

    async def flush(self) -> None:
        """Wait until the client has taken what was written."""
        await self._writer.drain()

    async def end_stream(self) -> None:
        """End the event stream."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    @property
    def is_closed(self) -> bool:
        """True when the client has gone."""
        return self._writer.is_closing()


Handler = Callable[[Request, Reply], Awaitable[None]]


async def serve_connection(
    handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer the requests of one connection, one after the other, until it closes."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while (request := await _read_request(reader)) is not None:
            await handler(request, Reply(writer))
    with contextlib.suppress(ConnectionError):
        writer.close()
        await writer.wait_closed()


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, *_ = [*first.split(" "), "", ""]
    headers = {k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in lines)}
    length = int(headers.get("content-length", "0") or 0)
    data = await reader.readexactly(length) if length else b""
    try:
        body = json.loads(data or b"{}")
    except ValueError:
        body = {}
    return Request(method, target.partition("?")[0], body if isinstance(body, dict) else {})
