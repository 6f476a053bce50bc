"""A synthetic streaming server that knows its own timings, for judging load clients.

It answers every POST with `--chunks` chunks of `--tokens` tokens each, the first after
`--first-ms`, then one every `--gap-ms`, and writes down when each request really arrived (by the
kernel's stamp) and each chunk really left: it does not matter whether it keeps its schedule.
`GET /truth/N` gives means over the last N answers (all of them without N) since it was last
asked, so that a client's trial requests do not count, and the server's own processor time. One
thread, one selector.
"""

from __future__ import annotations

import argparse
import heapq
import json
import selectors
import socket
import struct
import time
from dataclasses import dataclass, field

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
TIMESTAMPNS = 35  # SO_TIMESTAMPNS on Linux
WORDS = ("time ", "and ", "the ", "river ", "stone ", "of ", "light ", "a ")


@dataclass(eq=False)
class Stream:
    """One connection, and the answer being streamed on it."""

    sock: socket.socket
    pending: bytes = b""
    received_s: float = 0.0
    sent_s: list[float] = field(default_factory=list)


@dataclass
class TimedServer:
    """Streams answers on a schedule and records when chunks left."""

    plan: argparse.Namespace
    streams: int = 0
    finished: list[tuple[float, list[float], float]] = field(default_factory=list)
    due: list[tuple[float, int, Stream]] = field(default_factory=list)
    counter: int = 0

    def __post_init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", self.plan.port), backlog=1024)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, None)
        self.events = [self._event(place) for place in range(self.plan.chunks)]
        self.cpu = time.process_time()

    def _event(self, place: int) -> bytes:
        text = "".join(WORDS[(place + n) % len(WORDS)] for n in range(self.plan.tokens))
        is_last = place == self.plan.chunks - 1
        event = {
            "id": "chatcmpl-0123456789abcdef",
            "object": "chat.completion.chunk",
            "created": 1760000000,
            "model": "timed",
            "choices": [
                {
                    "index": 0,
                    "delta": {"content": text},
                    "logprobs": None,
                    "finish_reason": "length" if is_last else None,
                }
            ],
        }
        return _chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def serve(self) -> None:
        """Serve until killed."""
        while True:
            wait = self.due[0][0] - time.perf_counter() if self.due else 1.0
            for key, _ in self.selector.select(max(0.0, wait)):
                self._ready(key.data)
            now = time.perf_counter()
            while self.due and self.due[0][0] <= now:
                at, _, stream = heapq.heappop(self.due)
                self._send_next(stream, at)

    def _ready(self, stream: Stream | None) -> None:
        if stream is None:
            sock, _ = self.listener.accept()
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, TIMESTAMPNS, 1)
            self.selector.register(sock, selectors.EVENT_READ, Stream(sock))
            return
        data, now = _receive(stream.sock)
        if not data:
            self.selector.unregister(stream.sock)
            stream.sock.close()
            return
        stream.pending += data
        head, separator, body = stream.pending.partition(b"\r\n\r\n")
        if separator and len(body) >= _content_length(head):
            stream.pending = b""
            self._answer(stream, head, now)

    def _answer(self, stream: Stream, head: bytes, now: float) -> None:
        if head.startswith(b"GET /truth"):
            last = head.split(b" ")[1].removeprefix(b"/truth").strip(b"/")
            self._plain(stream, self.truth(int(last or 0)))
        elif head.startswith(b"GET"):
            models = {"object": "list", "data": [{"id": "timed", "object": "model"}]}
            self._plain(stream, models)
        else:
            stream.received_s, stream.sent_s = now, []
            stream.sock.send(HEAD)
            self._schedule(stream, now + self.plan.first_ms / 1000)

    def _schedule(self, stream: Stream, at: float) -> None:
        self.counter += 1
        heapq.heappush(self.due, (at, self.counter, stream))

    def _send_next(self, stream: Stream, at: float) -> None:
        place = len(stream.sent_s)
        try:
            if place == self.plan.chunks:
                self._finish(stream)
                return
            stream.sent_s.append(time.perf_counter())
            stream.sock.send(self.events[place])
        except OSError:
            return
        # The last chunk and the usage leave together, as real servers do.
        is_last = place == self.plan.chunks - 1
        self._schedule(stream, at if is_last else at + self.plan.gap_ms / 1000)

    def _finish(self, stream: Stream) -> None:
        tokens = self.plan.chunks * self.plan.tokens
        usage = {"prompt_tokens": 32, "completion_tokens": tokens, "total_tokens": 32 + tokens}
        event = {"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": usage}
        last = _chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
        now = time.perf_counter()
        self.finished.append((stream.received_s, stream.sent_s, now))
        stream.sock.send(last + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    def truth(self, last: int = 0) -> dict[str, float]:
        """Means over the last answers since the previous call; 0: over all of them."""
        done, self.finished = sorted(self.finished)[-last:], []
        cpu, self.cpu = self.cpu, time.process_time()
        count = len(done)
        if not count:
            return {"requests": 0}
        tokens = self.plan.chunks * self.plan.tokens
        span = max(end for _, _, end in done) - min(start for start, _, _ in done)
        return {
            "requests": count,
            "first_s": min(start for start, _, _ in done),
            "last_s": max(end for _, _, end in done),
            "tokens": count * tokens,
            "output_tokens_per_s": count * tokens / span,
            "chunks_per_s": count * self.plan.chunks / span,
            "ttft_ms": 1000 * sum(sent[0] - start for start, sent, _ in done) / count,
            "tpot_ms": 1000 * sum((s[-1] - s[0]) / (tokens - 1) for _, s, _ in done) / count,
            "inter_chunk_ms": 1000
            * sum(s[-1] - s[0] for _, s, _ in done)
            / (count * max(1, self.plan.chunks - 1)),
            "e2e_ms": 1000 * sum(end - start for start, _, end in done) / count,
            "server_cpu_s": self.cpu - cpu,
        }

    def _plain(self, stream: Stream, answer: object) -> None:
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        stream.sock.send(head.encode() + b"\r\n\r\n" + body)


def _receive(sock: socket.socket) -> tuple[bytes, float]:
    """What has arrived (b"": the client has gone), and when, by the kernel where it says so."""
    try:
        data, notes, _, _ = sock.recvmsg(262144, socket.CMSG_SPACE(16))
    except OSError:
        return b"", 0.0
    ages = [time.time() - _seconds(note) for _, kind, note in notes if kind == TIMESTAMPNS]
    age = ages[0] if ages and 0 <= ages[0] < 1 else 0.0
    return data, time.perf_counter() - age


def _seconds(stamp: bytes) -> float:
    seconds, nanoseconds = struct.unpack("qq", stamp)
    return float(seconds + nanoseconds * 1e-9)


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--chunks", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=3, help="tokens per chunk")
    parser.add_argument("--first-ms", type=float, default=100.0)
    parser.add_argument("--gap-ms", type=float, default=12.8)
    TimedServer(parser.parse_args()).serve()


if __name__ == "__main__":
    main()
