"""Every way in which servers write one answer gives one record, wherever the bytes are split."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from tuner.measure.exchange import NO_USAGE, Exchange, Job
from tuner.measure.http1 import MalformedAnswer
from tuner.measure.records import Prompt, RequestRecord
from tuner.measure.wire import openai_chat

PROMPT = Prompt("p1", ({"role": "user", "content": "Hi"},), "qa")
WIRE = openai_chat("m", extra_keys=("timings",))
TEXTS = ("Once ", "upon a", ' "time"\n', " there \u00e4\u4e2d\U0001f600", " was", " a", " river")
STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = STREAM + "Transfer-Encoding: chunked\r\n\r\n"


def text_event(text: str, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": finish}
    return json.dumps({"id": "c1", "created": 1760000000, "choices": [choice]})


ROLE = json.dumps({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
USAGE = json.dumps({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 21}})
EVENTS = [ROLE, *(text_event(text) for text in TEXTS), text_event("", "stop"), USAGE, "[DONE]"]


def chunk(text: str, head: str = "{:x}") -> bytes:
    data = text.encode()
    return head.format(len(data)).encode() + b"\r\n" + data + b"\r\n"


def in_chunks(*texts: str, end: str = "0\r\n\r\n", head: str = "{:x}") -> bytes:
    return CHUNKED.encode() + b"".join(chunk(text, head) for text in texts) + end.encode()


def lines(start: str = "data: ", end: str = "\n\n") -> list[str]:
    return [f"{start}{event}{end}" for event in EVENTS]


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


BODY = "".join(lines())
KEPT = {
    "an event per chunk": in_chunks(*lines()),
    "CRLF": in_chunks(*lines(end="\r\n\r\n")),
    "no space": in_chunks(*lines(start="data:")),
    "two spaces": in_chunks(*lines(start="data:  ")),
    "keep-alive comments": in_chunks(*(f": ping\n\n{line}" for line in lines())),
    "event names and ids": in_chunks(*(f"event: message\nid: 7\n{line}" for line in lines())),
    "all events in one chunk": in_chunks(BODY),
    "events over chunks": in_chunks(*cut(BODY, 37)),
    "newlines in chunks of their own": in_chunks(*BODY.replace("\n\n", "\n\n\0").split("\0")[:-1]),
    "upper-case sizes": in_chunks(*lines(), head="{:X}"),
    "zeros before sizes": in_chunks(*lines(), head="000{:x}"),
    "chunk extensions": in_chunks(*lines(), head="{:x};name=value"),
    "trailers": in_chunks(*lines(), end="0\r\nServer-Timing: total;dur=1\r\nX: y\r\n\r\n"),
    "a content length": f"{STREAM}Content-Length: {len(BODY.encode())}\r\n\r\n{BODY}".encode(),
    "100 Continue first": b"HTTP/1.1 100 Continue\r\n\r\n" + in_chunks(*lines()),
    "103 Early Hints first": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + in_chunks(*lines()),
}
CLOSED = {
    "HTTP/1.0": f"{STREAM.replace('1.1', '1.0')}\r\n{BODY}".encode(),
    "no framing": f"{STREAM}\r\n{BODY}".encode(),
    "no framing, no last newline": f"{STREAM}\r\n{BODY.rstrip()}".encode(),
    "connection close": in_chunks(*lines()).replace(b"\r\n", b"\r\nConnection: close\r\n", 1),
}


def exchange(wire: Any = WIRE) -> Exchange:
    return Exchange(Job(PROMPT, b""), wire, 0.0, 0.0)


def read(pieces: list[bytes], wire: Any = WIRE) -> tuple[Exchange, RequestRecord]:
    """Piece number n arrives at n seconds."""
    made = exchange(wire)
    for number, piece in enumerate(pieces, 1):
        made.take(piece, float(number))
    if not made.is_complete:
        made.end_of_input(float(len(pieces)))
    return made, made.record(99.0)


def check(record: RequestRecord) -> None:
    assert (record.error, record.finish_reason) == ("", "stop")
    assert record.text == "".join(TEXTS)
    assert (record.prompt_tokens, record.output_tokens) == (9, 21)
    assert len(record.chunk_s) == len(TEXTS)


@pytest.mark.parametrize("form", KEPT)
def test_split_at_every_byte(form: str) -> None:
    data = KEPT[form]
    for at in range(1, len(data)):
        made, record = read([data[:at], data[at:]])
        check(record)
        assert made.is_complete
        assert made.keeps_alive


@pytest.mark.parametrize("form", CLOSED)
def test_answers_that_end_with_the_connection_split_at_every_byte(form: str) -> None:
    data = CLOSED[form]
    for at in range(1, len(data)):
        made, record = read([data[:at], data[at:]])
        check(record)
        assert not made.keeps_alive


@pytest.mark.parametrize("data", [*KEPT.values(), *CLOSED.values()], ids=[*KEPT, *CLOSED])
def test_byte_by_byte_and_in_random_pieces(data: bytes) -> None:
    check(read([data[at : at + 1] for at in range(len(data))])[1])
    for seed in range(20):
        draw = random.Random(seed)
        edges = sorted(draw.sample(range(1, len(data)), 25))
        check(read([data[a:b] for a, b in zip([0, *edges], [*edges, None], strict=True)])[1])


def test_every_chunk_has_the_time_of_the_piece_that_completed_it() -> None:
    pieces = [CHUNKED.encode(), *(chunk(line) for line in lines()), b"0\r\n\r\n"]
    assert read(pieces)[1].chunk_s == (3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    halves = [half for piece in pieces for half in (piece[:3], piece[3:])]
    assert read(halves)[1].chunk_s == (6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0)
    pairs = [b"".join(pieces[at : at + 2]) for at in range(0, len(pieces), 2)]
    assert read(pairs)[1].chunk_s == (2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0)


def test_the_end_is_that_of_done() -> None:
    pieces = [CHUNKED.encode(), *(chunk(line) for line in lines()), b"0\r\n", b"\r\n"]
    assert read(pieces)[1].end_s == len(EVENTS) + 1


def test_decoding_every_event_gives_the_same_record() -> None:
    """The parser that remembers nothing is the yardstick of the one that learns."""

    def unlearnable(event: Any) -> Any:
        delta = WIRE.parse(event)
        return delta._replace(text=delta.text.replace("~", ""))

    events = [
        *EVENTS[:4],
        '{"error": null, "choices": [{"delta": {"content": "x"}}]}',
        *EVENTS[4:],
    ]
    pieces = [CHUNKED.encode(), *(chunk(f"data: {event}\n\n") for event in events), b"0\r\n\r\n"]
    wires = (WIRE, replace(WIRE, parse=unlearnable))
    learned, plain = (read(pieces, wire)[1] for wire in wires)
    assert learned == plain
    assert len(learned.chunk_s) == len(TEXTS) + 1


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([EVENTS[1], '{"error": {"message": "CUDA error"}}', "[DONE]"], "CUDA error"),
        ([EVENTS[1], '{"object": "error", "message": "too long"}'], "too long"),
        ([*EVENTS[1:4], "{broken", *EVENTS[4:]], "an event could not be read"),
        ([*EVENTS[:-2], "[DONE]"], NO_USAGE),
        ([EVENTS[1], USAGE, "[DONE]"], "the answer ended without a finish reason"),
        ([EVENTS[1], text_event("", "abort"), USAGE, "[DONE]"], "finish reason abort"),
        ([], "the answer ended without a finish reason"),
    ],
)
def test_answers_that_failed_split_at_every_byte(events: list[str], error: str) -> None:
    data = in_chunks(*(f"data: {event}\n\n" for event in events))
    for at in range(1, len(data)):
        record = read([data[:at], data[at:]])[1]
        assert record.error.startswith(error)
        assert not record.ok


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        ("301 Moved Permanently", "", "HTTP 301: no text"),
        ("307 Temporary Redirect", "see /v2", "HTTP 307: see /v2"),
        ("401 Unauthorized", '{"error": {"message": "no key"}}', "HTTP 401: no key"),
        ("429 Too Many Requests", '{"error": "slow down"}', "HTTP 429: slow down"),
        ("500 Internal Server Error", "<html>oops</html>", "HTTP 500: <html>oops</html>"),
        ("503 Service Unavailable", '{"detail": "loading"}', "HTTP 503: loading"),
    ],
)
def test_other_statuses_split_at_every_byte(status: str, body: str, error: str) -> None:
    head = f"HTTP/1.1 {status}\r\nLocation: /v2\r\nContent-Length: {len(body)}\r\n\r\n"
    data = (head + body).encode()
    for at in range(1, len(data)):
        made, record = read([data[:at], data[at:]])
        assert record.error == error
        assert made.keeps_alive


def test_a_compressed_answer_is_refused_by_name() -> None:
    data = in_chunks(*lines()).replace(b"\r\n", b"\r\nContent-Encoding: gzip\r\n", 1)
    with pytest.raises(MalformedAnswer, match=r"is compressed \(gzip\), which was not asked for"):
        exchange().take(data, 1.0)


def test_cut_anywhere_an_answer_is_never_taken_for_whole() -> None:
    """Until [DONE] has arrived, a closed connection is an error; after it, it is none."""
    data = in_chunks(*lines())
    done = data.index(b"[DONE]\n") + len(b"[DONE]\n") + 3
    for at in range(len(CHUNKED), len(data)):
        record = read([data[:at]])[1]
        assert record.ok is (at >= done), at
        if at < done:
            assert record.error == "the connection was closed before the answer ended"


def test_reasoning_is_output_and_its_first_chunk_the_first_token() -> None:
    def thought(text: str) -> str:
        delta = {"reasoning_content": text, "content": None}
        return json.dumps({"choices": [{"delta": delta, "finish_reason": None}]})

    events = [ROLE, thought("Let"), thought(" me"), thought(" see"), *EVENTS[1:]]
    pieces = [CHUNKED.encode(), *(chunk(f"data: {event}\n\n") for event in events)]
    record = read(pieces)[1]
    assert record.text == "Let me see" + "".join(TEXTS)
    assert record.first_s == 3.0
    assert len(record.chunk_s) == 3 + len(TEXTS)


def test_usage_in_every_chunk_keeps_the_last() -> None:
    events = []
    for count, text in enumerate(TEXTS, 1):
        usage = {"prompt_tokens": 9, "completion_tokens": 3 * count}
        events.append(json.dumps({**json.loads(text_event(text)), "usage": usage}))
    data = in_chunks(*(f"data: {e}\n\n" for e in [*events, text_event("", "length"), "[DONE]"]))
    record = read([data])[1]
    assert (record.output_tokens, record.finish_reason, record.error) == (21, "length", "")
    assert record.text == "".join(TEXTS)


@pytest.mark.parametrize("clock", ["NaN", "0", "0.0", "-1", "Infinity", "null", '"fast"'])
def test_the_servers_clocks_have_no_part_in_times(clock: str) -> None:
    usage = USAGE[:-1] + f', "timings": {{"predicted_ms": {clock}, "prompt_ms": {clock}}}}}'
    events = [*EVENTS[:-2], usage, "[DONE]"]
    record = read([CHUNKED.encode(), *(chunk(f"data: {event}\n\n") for event in events)])[1]
    assert record.ok
    assert record.chunk_s == (3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    assert "predicted_ms" in record.extra["timings"]
