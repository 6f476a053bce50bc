"""Owns reading one HTTP/1.1 answer whose body is a stream of `data:` events.

Bytes in, event payloads out: no socket, no clock, no JSON. Written for speed: a load client
reads thousands of small chunks per second, and its own delays must not become latencies.
"""

from __future__ import annotations

from collections.abc import Mapping

_MAX_PLAIN_BODY = 65536
_MAX_HEAD = 65536


class MalformedAnswer(Exception):
    """The bytes are not an HTTP/1.1 answer."""


class AnswerReader:
    """Reads one answer incrementally; `feed` returns the event payloads that became complete.

    Attributes:
        status: HTTP status, 0 until the head has arrived.
        is_complete: the whole answer has arrived, as its framing says.
        keeps_alive: the connection may be used again once the answer is complete.
    """

    __slots__ = (
        "_is_between_chunks",
        "_is_chunked",
        "_is_stream",
        "_left",
        "_line",
        "_plain",
        "_raw",
        "is_complete",
        "keeps_alive",
        "status",
    )

    def __init__(self) -> None:
        self.status = 0
        self.is_complete = False
        self.keeps_alive = False
        self._raw = b""
        self._line = b""
        self._plain = b""
        self._is_chunked = False
        self._is_between_chunks = False
        self._is_stream = False
        self._left: int | None = None

    @property
    def plain_body(self) -> str:
        """The body of an answer that is no event stream (errors), at most 64 KiB of it."""
        return self._plain.decode("utf-8", "replace")

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes in; returns payloads of complete events. Raises MalformedAnswer."""
        self._raw = self._raw + data if self._raw else data
        if self.status == 0 and not self._read_head():
            return []
        body = self._unchunk() if self._is_chunked else self._unframe()
        if self._is_stream:
            events = self._events(body)
            at_rest = not (self._raw or self._line or self.is_complete)
            self._is_between_chunks = self._is_chunked and at_rest
            return events
        self._plain = (self._plain + body)[:_MAX_PLAIN_BODY]
        return []

    def lone_chunk(self, data: bytes) -> int:
        """Where the content of a chunk begins when the bytes are one whole chunk; 0 otherwise.

        That is how engines stream. Such bytes may be read by the caller instead of being fed: the
        reader then stands where it stood.
        """
        end = data.find(b"\r\n", 1, 10) if self._is_between_chunks else -1
        if end < 0:
            return 0
        try:
            size = int(data[:end], 16)
        except ValueError:
            return 0
        return end + 2 if size > 0 and size == len(data) - end - 4 else 0

    def end_of_input(self) -> list[bytes]:
        """The peer closed: ends an answer without framing; returns a last unfinished event."""
        if self.status and not self._is_chunked and self._left is None:
            self.is_complete = True
        self.keeps_alive = False
        return self._events(b"\n") if self._is_stream else []

    def _read_head(self) -> bool:
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            if len(self._raw) > _MAX_HEAD or not b"HTTP/".startswith(self._raw[:5]):
                raise MalformedAnswer(f"no HTTP/1.1 answer: {self._raw[:80]!r}")
            return False
        first, *lines = self._raw[:end].decode("latin-1").split("\r\n")
        self._raw = self._raw[end + 4 :]
        status = _status(first)
        if status < 200:  # "100 Continue" and the like: the answer is still to come
            return self._read_head()
        self.status = status
        self._apply(first, dict(_header(line) for line in lines))
        return True

    def _apply(self, first: str, headers: Mapping[str, str]) -> None:
        self._is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length", "")
        self._left = int(length) if length.isdecimal() and not self._is_chunked else None
        kind = headers.get("content-type", "").lower()
        self._is_stream = self.status == 200 and "json" not in kind and "html" not in kind
        is_framed = self._is_chunked or self._left is not None
        closes = headers.get("connection", "").lower() == "close" or first.startswith("HTTP/1.0")
        self.keeps_alive = is_framed and not closes
        self.is_complete = self._left == 0
        coding = headers.get("content-encoding", "identity")
        if coding != "identity":
            raise MalformedAnswer(f"the answer is compressed ({coding}), which was not asked for")

    def _unchunk(self) -> bytes:
        raw, out, at = self._raw, [], 0
        while not self.is_complete:
            end = raw.find(b"\r\n", at)
            if end < 0:
                break
            size = _chunk_size(raw[at:end])
            stop = end + 2 + size
            if not size:
                self.is_complete, at = _ends(raw, end, at)
                break
            if len(raw) < stop + 2:
                break
            out.append(raw[end + 2 : stop])
            at = stop + 2
        self._raw = raw[at:]
        return b"".join(out) if len(out) != 1 else out[0]

    def _unframe(self) -> bytes:
        body, self._raw = self._raw, b""
        if self._left is not None:
            body = body[: self._left]
            self._left -= len(body)
            self.is_complete = self._left == 0
        return body

    def _events(self, body: bytes) -> list[bytes]:
        text = self._line + body if self._line else body
        lines = text.split(b"\n")
        self._line = lines.pop()
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


def _status(first: str) -> int:
    parts = first.split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdecimal():
        raise MalformedAnswer(f"no HTTP/1.1 answer: {first[:80]!r}")
    return int(parts[1])


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


def _ends(raw: bytes, end: int, at: int) -> tuple[bool, int]:
    """Whether the last chunk, whose size line starts at `at` and ends at `end`, is all there.

    Trailers may follow it, up to an empty line. Also says where what follows begins.
    """
    last = raw.find(b"\r\n\r\n", end)
    return (True, last + 4) if last >= 0 else (False, at)


def _chunk_size(text: bytes) -> int:
    try:
        size = int(text.partition(b";")[0], 16)
    except ValueError:
        size = -1
    if size < 0:
        raise MalformedAnswer(f"no chunk size: {text[:40]!r}")
    return size
