"""What a request body holds and what each kind of event means."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.measure.records import Prompt, Sampling
from tuner.measure.wire import Delta, error_text, openai_chat, usage_counts

PROMPT = Prompt(
    "p1", ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}), "chat"
)


def chat_event(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def test_chat_body() -> None:
    wire = openai_chat("model-x", extra_body={"cache_prompt": False}, disables_cache=True)
    assert wire.path == "/v1/chat/completions"
    assert wire.disables_cache
    assert wire.body(PROMPT, Sampling(max_tokens=64)) == {
        "model": "model-x",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 64,
        "temperature": 0.0,
        "cache_prompt": False,
    }


def test_exact_tokens_and_seed() -> None:
    body = openai_chat("m").body(
        PROMPT, Sampling(max_tokens=8, exact_tokens=True, temperature=0.7, seed=3)
    )
    assert body["ignore_eos"] is True
    assert body["seed"] == 3
    assert body["temperature"] == 0.7


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        ({"role": "assistant", "content": ""}, ""),
        ({"content": "word"}, "word"),
        ({"content": None}, ""),
        ({"reasoning_content": "hm "}, "hm "),
        ({"reasoning": "hm ", "content": "so"}, "hm so"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": '{"a"'}}]}, 'f{"a"'),
    ],
)
def test_text_of_chat_deltas(delta: dict[str, Any], text: str) -> None:
    assert openai_chat("m").parse(chat_event(delta)).text == text


def test_usage_on_a_chunk_without_choices() -> None:
    event = {
        "choices": [],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": 37,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
    }
    assert openai_chat("m").parse(event) == Delta(
        prompt_tokens=12, output_tokens=37, cached_tokens=8
    )


def test_usage_and_finish_reason_on_a_chunk_with_text() -> None:
    event = {**chat_event({"content": "end"}, "stop"), "usage": {"completion_tokens": 4}}
    delta = openai_chat("m").parse(event)
    assert (delta.text, delta.finish_reason, delta.output_tokens) == ("end", "stop", 4)


def test_extra_keys_are_kept() -> None:
    event = {**chat_event({"content": "x"}), "timings": {"draft_n": 4}, "id": "1"}
    assert openai_chat("m", extra_keys=["timings"]).parse(event).extra == {
        "timings": {"draft_n": 4}
    }
    assert openai_chat("m").parse(event).extra == {}


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"error": {"message": "out of memory", "code": 500}}, "out of memory"),
        ({"error": {"code": 500}}, "{'code': 500}"),
        ({"error": "broken"}, "broken"),
        ({"object": "error", "message": "bad request"}, "bad request"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"choices": [], "error": None}, ""),
        ({"choices": []}, ""),
    ],
)
def test_errors_inside_a_stream(event: dict[str, Any], text: str) -> None:
    assert error_text(event) == text
    assert openai_chat("m").parse(event).error == text


@pytest.mark.parametrize("count", [True, -1, float("nan"), float("inf"), "12", None])
def test_counts_that_are_none(count: object) -> None:
    assert usage_counts({"completion_tokens": count})[1] is None


def test_no_usage() -> None:
    assert usage_counts(None) == (None, None, None)
    assert usage_counts({"prompt_tokens": 3, "prompt_tokens_details": None}) == (3, None, None)
