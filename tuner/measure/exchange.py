"""Owns one request in flight: what arrived when, and the record it becomes.

It neither waits nor sends; the driver tells it what came in and when.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from tuner.measure.http1 import AnswerReader
from tuner.measure.records import Prompt, RequestRecord
from tuner.measure.template import EventTemplate
from tuner.measure.wire import Delta, Wire, error_text

NO_USAGE = "the server reported no usage"
_FAILED_REASONS = frozenset({"abort", "error"})

CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt with the bytes that request it, made before the clock starts."""

    prompt: Prompt
    payload: bytes


class Exchange:
    """One request from being sent to its end. Times are the driver's clock, in seconds."""

    __slots__ = (
        "_cached_tokens",
        "_chunk_s",
        "_error",
        "_extra",
        "_finish_reason",
        "_output_tokens",
        "_prompt_tokens",
        "_reader",
        "_template",
        "_text",
        "_wire",
        "done_s",
        "job",
        "last_event_s",
        "scheduled_s",
        "sent_s",
    )

    def __init__(self, job: Job, wire: Wire, scheduled_s: float, sent_s: float) -> None:
        self.job = job
        self.scheduled_s = scheduled_s
        self.sent_s = sent_s
        self.done_s: float | None = None
        self.last_event_s: float | None = None
        self._wire = wire
        self._reader = AnswerReader()
        self._template = EventTemplate()
        self._chunk_s: list[float] = []
        self._text: list[str] = []
        self._prompt_tokens: int | None = None
        self._output_tokens: int | None = None
        self._cached_tokens: int | None = None
        self._finish_reason: str | None = None
        self._error = ""
        self._extra: dict[str, Any] = {}

    @property
    def has_answer_bytes(self) -> bool:
        """True once the server has answered anything at all."""
        return self._reader.status != 0

    @property
    def is_complete(self) -> bool:
        """True when the answer has fully arrived, framing included."""
        return self._reader.is_complete

    @property
    def keeps_alive(self) -> bool:
        """True when the connection can carry the next request."""
        return self._reader.keeps_alive

    @property
    def has_text(self) -> bool:
        """True once generated text has arrived."""
        return bool(self._chunk_s)

    def take(self, data: bytes, now: float) -> bool:
        """Take bytes of the answer that arrived at `now`; returns `is_complete`.

        Raises MalformedAnswer.
        """
        start = self._reader.lone_chunk(data)
        if start and (text := self._template.text(data, start)):
            self.last_event_s = now
            self._chunk_s.append(now)
            self._text.append(text)
            return False
        for payload in self._reader.feed(data):
            self._event(payload, now)
        return self._reader.is_complete

    def end_of_input(self, now: float) -> None:
        """The server closed the connection."""
        for payload in self._reader.end_of_input():
            self._event(payload, now)
        if not self._reader.is_complete and self.done_s is None:
            self._error = self._error or "the connection was closed before the answer ended"

    def record(
        self, end_s: float, cut: str = "", count: CountTokens | None = None
    ) -> RequestRecord:
        """The record of this request; `cut` says why it was given up, if it was."""
        text = "".join(self._text)
        tokens, extra = self._output_tokens, self._extra
        if tokens is None and count is not None and text:
            tokens, extra = count(text), {**extra, "tokens_counted_locally": True}
        prompt = self.job.prompt
        return RequestRecord(
            prompt_id=prompt.id,
            category=prompt.category,
            scheduled_s=self.scheduled_s,
            sent_s=self.sent_s,
            first_s=self._chunk_s[0] if self._chunk_s else None,
            last_s=self._chunk_s[-1] if self._chunk_s else None,
            end_s=end_s if self.done_s is None else self.done_s,
            chunk_s=tuple(self._chunk_s),
            prompt_tokens=self._prompt_tokens,
            output_tokens=tokens,
            cached_tokens=self._cached_tokens,
            finish_reason=self._finish_reason,
            error=cut or self._verdict(tokens),
            text=text,
            extra=extra,
        )

    def _verdict(self, tokens: int | None) -> str:
        """What was wrong with a finished answer; "" when nothing was."""
        if self._error:
            return self._error
        status = self._reader.status
        if status != 200:
            return f"HTTP {status}: {_plain_error(self._reader.plain_body)}"
        if self._reader.plain_body:
            return f"answered without a stream: {_plain_error(self._reader.plain_body)}"
        if self._finish_reason is None:
            return "the answer ended without a finish reason"
        if self._finish_reason in _FAILED_REASONS:
            return f"finish reason {self._finish_reason}"
        return NO_USAGE if tokens is None else ""

    def _event(self, payload: bytes, now: float) -> None:
        self.last_event_s = now
        if payload == b"[DONE]":
            self.done_s = now
            return
        try:
            delta = self._wire.parse(_decode(payload))
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            shown = payload[:120].decode("utf-8", "replace")
            self._error = self._error or f"an event could not be read ({error}): {shown}"
            return
        self._apply(delta, now)
        if delta.text:
            self._template.learn(payload, delta, self._wire.parse)

    def _apply(self, delta: Delta, now: float) -> None:
        if delta.error:
            self._error = self._error or delta.error
        if delta.text_so_far is not None:
            self._replace_text(delta.text_so_far, now)
        elif delta.text:
            self._chunk_s.append(now)
            self._text.append(delta.text)
        if delta.finish_reason is not None:
            self._finish_reason = delta.finish_reason
        if delta.prompt_tokens is not None:
            self._prompt_tokens = delta.prompt_tokens
        if delta.output_tokens is not None:
            self._output_tokens = delta.output_tokens
        if delta.cached_tokens is not None:
            self._cached_tokens = delta.cached_tokens
        if delta.extra:
            self._extra.update(delta.extra)

    def _replace_text(self, text: str, now: float) -> None:
        if text and text != "".join(self._text):
            self._chunk_s.append(now)
            self._text = [text]


def _decode(payload: bytes) -> Any:
    """The JSON of an event; NaN and Infinity are no JSON, but servers send them."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return json.loads(payload)


def _plain_error(body: str) -> str:
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = None
    text = error_text(parsed) if isinstance(parsed, dict) else ""
    return " ".join((text or body).split())[:300] or "no text"
