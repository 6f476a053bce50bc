"""A scripted local server: each request is answered by the script the test gives."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tuner.config.workload import TimeoutsConfig
from tuner.measure.client import LoadClient
from tuner.measure.prompts import Workload
from tuner.measure.records import LoadPoint, Prompt, Sampling
from tuner.measure.wire import Wire, openai_chat

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Answer:
    """Writes one answer; every method is what a real server might do."""

    def __init__(self, sock: socket.socket, body: dict[str, Any], stop: threading.Event) -> None:
        self.sock = sock
        self.body = body
        self.stop = stop

    def head(self) -> None:
        self.sock.sendall(HEAD)

    def raw(self, data: bytes) -> None:
        self.sock.sendall(data)

    def chunk(self, data: bytes) -> None:
        self.sock.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def event(self, event: dict[str, Any]) -> None:
        self.chunk(f"data: {json.dumps(event)}\n\n".encode())

    def text(self, text: str, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
        self.event({"choices": [choice]})

    def usage(self, output: int, prompt: int = 10, cached: int | None = None) -> None:
        usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": output}
        if cached is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        self.event({"choices": [], "usage": usage})

    def done(self) -> None:
        self.chunk(b"data: [DONE]\n\n")
        self.sock.sendall(b"0\r\n\r\n")

    def wait(self, seconds: float) -> None:
        self.stop.wait(seconds)

    def status(self, code: int, body: str, kind: str = "application/json") -> None:
        data = body.encode()
        head = f"HTTP/1.1 {code} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        self.sock.sendall(head.encode() + data)


Script = Callable[[Answer], None]


def plain_answer(answer: Answer) -> None:
    answer.head()
    answer.text("one ")
    answer.text("two", finish="stop")
    answer.usage(2)
    answer.done()


@dataclass
class ScriptedServer:
    """Serves on a thread per connection; `bodies` are the requests seen, in order."""

    script: Script
    bodies: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0
    in_flight: int = 0
    peak: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._listener.settimeout(0.05)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(5)
        self._listener.close()

    def stop_listening(self) -> None:
        self._listener.close()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                sock, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(0.05)
            self.connections += 1
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            while (body := self._request(sock)) is not None:
                with self._lock:
                    self.bodies.append(body)
                    self.in_flight += 1
                    self.peak = max(self.peak, self.in_flight)
                try:
                    self.script(Answer(sock, body, self._stop))
                except (OSError, ConnectionAbortedError):
                    return
                finally:
                    with self._lock:
                        self.in_flight -= 1

    def _request(self, sock: socket.socket) -> dict[str, Any] | None:
        data = b""
        while not self._stop.is_set():
            head, separator, rest = data.partition(b"\r\n\r\n")
            if separator:
                lines = head.lower().split(b"\r\n")
                sizes = [line.split(b":")[1] for line in lines if line.startswith(b"content-len")]
                length = int(sizes[0]) if sizes else 0
                if len(rest) >= length:
                    return json.loads(rest[:length]) if length else {}
            try:
                more = sock.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                return None
            if not more:
                return None
            data += more
        return None


class Hangup(ConnectionAbortedError):
    """Raised by a script to close the connection at once."""


@pytest.fixture
def serve() -> Iterator[Callable[[Script], ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def start(script: Script) -> ScriptedServer:
        servers.append(ScriptedServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def make_prompts(count: int) -> tuple[Prompt, ...]:
    return tuple(
        Prompt(f"p{n}", ({"role": "user", "content": f"Question number {n}?"},), "qa")
        for n in range(count)
    )


def make_workload(**changes: Any) -> Workload:
    values: dict[str, Any] = {
        "blocks": (make_prompts(4),),
        "held_out_blocks": (),
        "warm_up_prompts": make_prompts(4),
        "loads": (LoadPoint(concurrency=1),),
        "sampling": Sampling(max_tokens=16),
        "cache": "keep",
        "timeouts": TimeoutsConfig(),
        **changes,
    }
    return Workload(**values)


@pytest.fixture
def workload() -> Callable[..., Workload]:
    return make_workload


@pytest.fixture
def prompts() -> Callable[[int], tuple[Prompt, ...]]:
    return make_prompts


@dataclass
class TimedServer:
    """The benchmarks' synthetic server in a process of its own."""

    url: str

    def truth(self) -> dict[str, float]:
        with urllib.request.urlopen(self.url + "/truth", timeout=10) as page:
            return json.load(page)


@pytest.fixture
def timed_server() -> Iterator[TimedServer]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.timed_server", "--port", str(port)]
    command += ["--chunks", "30", "--tokens", "3", "--gap-ms", "20"]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    try:
        server = TimedServer(f"http://127.0.0.1:{port}")
        wait_until_it_answers(server, process)
        yield server
    finally:
        process.kill()
        process.wait()


def wait_until_it_answers(server: TimedServer, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            server.truth()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the timed server does not answer")


@pytest.fixture
def connect_url() -> Iterator[Callable[..., LoadClient]]:
    clients: list[LoadClient] = []

    def make(url: str, **changes: Any) -> LoadClient:
        workload = make_workload(**changes)
        clients.append(LoadClient(url, openai_chat("m"), workload, alive=lambda: None))
        return clients[-1]

    yield make
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def connect() -> Iterator[Callable[..., LoadClient]]:
    clients: list[LoadClient] = []

    def make(
        server: ScriptedServer,
        *,
        wire: Wire | None = None,
        alive: Callable[[], str | None] = lambda: None,
        **changes: Any,
    ) -> LoadClient:
        count = changes.pop("count_tokens", None)
        client = LoadClient(
            server.url,
            wire or openai_chat("m"),
            make_workload(**changes),
            alive=alive,
            count_tokens=count,
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)
