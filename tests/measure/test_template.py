"""An event that differs in its text alone is read without decoding it, and never misread."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.template import EventTemplate
from tuner.measure.wire import Delta, openai_chat

PARSE = openai_chat("m", extra_keys=("timings",)).parse


def event(text: str, *, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return json.dumps({"id": "c1", "model": "m", "choices": [choice], **more}).encode()


def fits(template: EventTemplate, payload: bytes, size: bytes = b"a1\r\n") -> str:
    return template.text(size + b"data: " + payload + b"\n\n\r\n", len(size))


def learned(payload: bytes, parse: Any = PARSE) -> EventTemplate:
    template = EventTemplate()
    template.learn(payload, parse(json.loads(payload)), parse)
    return template


def test_nothing_fits_before_a_lesson() -> None:
    assert fits(EventTemplate(), event("one")) == ""


@given(st.text(min_size=1))
def test_any_text_in_the_learned_place(text: str) -> None:
    assert fits(learned(event("one ")), event(text)) == text


@given(st.text())
def test_any_text_written_without_escapes(text: str) -> None:
    payload = event("@").replace(b'"@"', json.dumps(text, ensure_ascii=False).encode())
    assert fits(learned(event("one ")), payload) == text


@pytest.mark.parametrize(
    "payload",
    [
        event("two", finish="stop"),
        event("two", usage={"completion_tokens": 3}),
        event("two").replace(b"c1", b"c2"),
        event("two")[:-1],
        event("two")[1:],
        event("@").replace(b'"@"', b'"a","content":"b"'),
        event("@").replace(b'"@"', b'"a"x"b"'),
        event("@").replace(b'"@"', b'"\xff"'),
        event("@").replace(b'"@"', b'"tab\there"'),
        event("@").replace(b'"@"', b'"\\x"'),
        event("@").replace(b'"@"', b'"'),
        event("@").replace(b'"@"', b"null"),
        event(""),
        b"",
        b"[DONE]",
        b'{"error": {"message": "out of memory"}}',
    ],
)
def test_other_events_are_left_to_the_parser(payload: bytes) -> None:
    assert fits(learned(event("one ")), payload) == ""


@pytest.mark.parametrize(
    "first",
    [
        event("one", finish="stop"),
        event("one", usage={"completion_tokens": 1}),
        event("one", timings={"predicted_n": 1}),
        event("c1"),
        event("tw\u00f6"),
        event("a\nb"),
        b'{"choices": [{"delta": {"content": "b", "reasoning": "a"}}]}',
    ],
)
def test_events_that_teach_nothing(first: bytes) -> None:
    assert fits(learned(first), first) == ""


def test_reasoning_and_tool_calls_are_text_too() -> None:
    for shape in ('{"reasoning_content": "@"}', '{"tool_calls": [{"function": {"name": "@"}}]}'):
        first = f'{{"choices": [{{"delta": {shape.replace("@", "one")}}}]}}'.encode()
        later = first.replace(b"one", b"two")
        assert fits(learned(first), later) == "two"


def test_a_route_that_looks_into_its_text_is_always_asked() -> None:
    def parse(data: Mapping[str, Any]) -> Delta:
        text = data["choices"][0]["delta"]["content"]
        return Delta(text.upper())

    assert fits(learned(event("ONE"), parse), event("two")) == ""


def test_a_parser_that_fails_on_the_probe_teaches_nothing() -> None:
    def parse(data: Mapping[str, Any]) -> Delta:
        return Delta({"one": "one"}[data["choices"][0]["delta"]["content"]])

    assert fits(learned(event("one"), parse), event("one")) == ""


def test_a_later_lesson_replaces_the_first() -> None:
    template = learned(event("one", created=1))
    assert fits(template, event("two", created=2)) == ""
    template.learn(event("two", created=2), Delta("two"), PARSE)
    assert fits(template, event("three", created=2)) == "three"
    assert fits(template, event("four", created=1)) == ""


def test_lessons_end_when_every_event_is_different() -> None:
    template, asked = EventTemplate(), 0

    def counting(data: Mapping[str, Any]) -> Delta:
        nonlocal asked
        asked += 1
        return PARSE(data)

    for number in range(50):
        payload = event(f"word {number}", created=number)
        assert fits(template, payload) == ""
        template.learn(payload, Delta(f"word {number}"), counting)
    assert asked == 4


def test_lessons_go_on_while_they_are_of_use() -> None:
    template = EventTemplate()
    for second in range(20):
        template.learn(event("word", created=second), Delta("word"), PARSE)
        assert fits(template, event("more", created=second)) == "more"
