"""An answer read in any pieces gives the same events."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.http1 import AnswerReader, MalformedAnswer

STREAM = b"Content-Type: text/event-stream\r\n"


def chunked(*chunks: bytes) -> bytes:
    parts = [f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks]
    return b"".join(parts) + b"0\r\n\r\n"


def answer(body: bytes, headers: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\n" + headers + b"\r\n" + body


EVENTS = (b'data: {"a": 1}\n\n', b'data: {"b": "\xc3\xa4"}\r\n\r\n', b"data: [DONE]\n\n")
CHUNKED = answer(chunked(*EVENTS), STREAM + b"Transfer-Encoding: chunked\r\n")


def read(reader: AnswerReader, pieces: list[bytes]) -> list[bytes]:
    return [event for piece in pieces for event in reader.feed(piece)]


@given(st.lists(st.integers(0, len(CHUNKED)), max_size=12))
def test_any_pieces_give_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(CHUNKED)]
    pieces = [CHUNKED[a:b] for a, b in pairwise(edges)]
    reader = AnswerReader()
    assert read(reader, pieces) == [b'{"a": 1}', '{"b": "ä"}'.encode(), b"[DONE]"]
    assert (reader.status, reader.is_complete, reader.keeps_alive) == (200, True, True)


@given(st.lists(st.text(max_size=20), min_size=1, max_size=8), st.integers(1, 40))
def test_events_split_over_chunks(texts: list[str], size: int) -> None:
    body = b"".join(b"data: " + json.dumps({"t": text}).encode() + b"\n\n" for text in texts)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    reader = AnswerReader()
    events = reader.feed(answer(chunked(*pieces), STREAM + b"Transfer-Encoding: chunked\r\n"))
    assert [json.loads(event)["t"] for event in events] == texts


def test_content_length() -> None:
    reader = AnswerReader()
    body = b'data: {"a": 1}\n\n'
    events = reader.feed(answer(body, STREAM + f"Content-Length: {len(body)}\r\n".encode()))
    assert events == [b'{"a": 1}']
    assert reader.is_complete
    assert reader.keeps_alive


def test_answer_that_ends_with_the_connection() -> None:
    reader = AnswerReader()
    events = reader.feed(answer(b'data: {"a": 1}\n\ndata: {"b": 2}', STREAM))
    assert events == [b'{"a": 1}']
    assert not reader.is_complete
    assert reader.end_of_input() == [b'{"b": 2}']
    assert reader.is_complete
    assert not reader.keeps_alive


def test_truncated_chunked_answer_is_not_complete() -> None:
    reader = AnswerReader()
    reader.feed(CHUNKED[:-5])
    reader.end_of_input()
    assert not reader.is_complete


def test_error_answer_has_a_plain_body() -> None:
    reader = AnswerReader()
    body = b'{"detail": "Not Found"}'
    headers = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n".encode()
    assert reader.feed(answer(body, headers, b"404 Not Found")) == []
    assert (reader.status, reader.plain_body) == (404, body.decode())


def test_json_with_status_200_is_no_stream() -> None:
    reader = AnswerReader()
    headers = b"Content-Type: application/json\r\nContent-Length: 2\r\n"
    assert reader.feed(answer(b"{}", headers)) == []
    assert reader.plain_body == "{}"


def test_comments_and_event_names_are_no_events() -> None:
    reader = AnswerReader()
    body = b": ping\n\nevent: message\ndata:{}\nid: 4\n\n"
    assert reader.feed(answer(body, STREAM)) == [b"{}"]


def test_connection_close_is_not_kept_alive() -> None:
    reader = AnswerReader()
    reader.feed(answer(b"", STREAM + b"Content-Length: 0\r\nConnection: close\r\n"))
    assert reader.is_complete
    assert not reader.keeps_alive


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        answer(b"zz\r\n", STREAM + b"Transfer-Encoding: chunked\r\n"),
    ],
)
def test_malformed_answers(data: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="no "):
        AnswerReader().feed(data)
