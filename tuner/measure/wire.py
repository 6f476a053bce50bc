"""Owns how a prompt becomes a request body and a streamed event becomes a delta.

The OpenAI routes are here; engines derive theirs from them (extra body fields, other routes).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from tuner.measure.records import Prompt, Sampling


class Delta(NamedTuple):
    """What one streamed event adds to an answer.

    `text` is new generated text (reasoning included); `text_so_far` replaces all text, for
    routes that stream cumulative text. `usage` values are the server's counts. A tuple, because
    one is made per chunk: a frozen dataclass costs five times as much.
    """

    text: str = ""
    text_so_far: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    error: str = ""
    extra: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Wire:
    """A streaming route: POST `body(prompt, sampling)` to `path`, `parse` each JSON event.

    `disables_cache`: the body itself asks the server not to reuse cached prompts.
    """

    path: str
    body: Callable[[Prompt, Sampling], dict[str, Any]]
    parse: Callable[[Mapping[str, Any]], Delta]
    headers: Mapping[str, str] = field(default_factory=dict)
    disables_cache: bool = False


def openai_chat(
    model: str,
    *,
    extra_body: Mapping[str, Any] | None = None,
    extra_keys: Sequence[str] = (),
    disables_cache: bool = False,
) -> Wire:
    """The streamed `/v1/chat/completions` route; `extra_keys` of events are kept."""
    extra = dict(extra_body or {})

    def body(prompt: Prompt, sampling: Sampling) -> dict[str, Any]:
        messages = [dict(message) for message in prompt.messages]
        return {"model": model, "messages": messages, **_generation(sampling), **extra}

    parse = _parser(_chat_text, tuple(extra_keys))
    return Wire("/v1/chat/completions", body, parse, disables_cache=disables_cache)


def error_text(event: Mapping[str, Any]) -> str:
    """The error an event or answer body carries, in the server's words; "" when it carries none.

    Servers report errors inside a 200 stream as `{"error": …}`, `{"object": "error", …}` or
    `{"detail": …}`.
    """
    error = event.get("error")
    if error:
        message = error.get("message") if isinstance(error, Mapping) else None
        return str(message or error)
    if event.get("object") == "error":
        return str(event.get("message") or "error object without a message")
    if "detail" in event and "choices" not in event:
        return str(event["detail"])
    return ""


def usage_counts(usage: object) -> tuple[int | None, int | None, int | None]:
    """Prompt, output and cached tokens of a `usage` object; None where it does not say."""
    if not isinstance(usage, Mapping):
        return None, None, None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return (
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
        _count(cached),
    )


def _generation(sampling: Sampling) -> dict[str, Any]:
    body: dict[str, Any] = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
    }
    if sampling.exact_tokens:
        body["ignore_eos"] = True
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    return body


def _parser(
    text_of: Callable[[Mapping[str, Any]], str], extra_keys: tuple[str, ...]
) -> Callable[[Mapping[str, Any]], Delta]:
    def parse(event: Mapping[str, Any]) -> Delta:
        error = error_text(event)
        if error:
            return Delta(error=error)
        choices = event.get("choices")
        choice = choices[0] if choices else {}
        text, finish_reason = text_of(choice), choice.get("finish_reason")
        usage = event.get("usage")
        extra = {key: event[key] for key in extra_keys if key in event} if extra_keys else {}
        if usage is None and not extra:
            return Delta(text, None, finish_reason)
        return Delta(text, None, finish_reason, *usage_counts(usage), extra=extra)

    return parse


def _chat_text(choice: Mapping[str, Any]) -> str:
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return ""
    text = delta.get("content") or ""
    if not isinstance(text, str):
        text = str(text)
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    if reasoning:
        text = f"{reasoning}{text}"
    calls = delta.get("tool_calls")
    return text + "".join(_call_text(call) for call in calls) if calls else text


def _call_text(call: Mapping[str, Any]) -> str:
    function = call.get("function") or {}
    return f"{function.get('name') or ''}{function.get('arguments') or ''}"


def _count(value: object) -> int | None:
    """A token count; booleans, negatives, NaN and texts are no counts."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 1e12 else None
