"""Owns recognising that a streamed event differs from an earlier one in its text alone.

Servers repeat the same JSON around every piece of text. Decoding it anew for each chunk is most
of what a load client does, so the bytes before and after the text are learned once per answer,
and a chunk that starts and ends with them needs only its text decoded. This is exact, not a guess:
what lies between must be one JSON string, and a lesson counts only when the route's own parser
finds another text put in its place, and nothing else changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from tuner.measure.wire import Delta

_PROBE = "~ another text ~"
_MOST_USELESS = 3


class EventTemplate:
    """The bytes around the text of one answer's events, once they are known."""

    __slots__ = ("_after", "_before", "_from", "_to", "_useless", "_was_used")

    def __init__(self) -> None:
        self._before = b""
        self._after = b""
        self._from = 0
        self._to = 0
        self._useless = 0
        self._was_used = True

    def text(self, chunk: bytes, start: int = 0) -> str:
        """The text of a chunk, from `start` on, that fits; "" when it has to be read as a whole.

        A chunk is an event as engines write it: `data: `, the JSON, an empty line, and the end of
        an HTTP chunk.
        """
        if not self._to or not (
            chunk.endswith(self._after) and chunk.startswith(self._before, start)
        ):
            return ""
        try:
            text: str = orjson.loads(chunk[start + self._from : self._to])
        except orjson.JSONDecodeError:
            return ""
        self._was_used = True
        return text

    def learn(self, payload: bytes, delta: Delta, parse: Callable[[Any], Delta]) -> None:
        """Learn from the JSON of an event that was decoded as a whole into `delta`.

        Gives up when lesson after lesson fits no later event: such events differ in more.
        """
        literal = b'"' + delta.text.encode("utf-8", "replace") + b'"'
        if self._useless >= _MOST_USELESS or payload.count(literal) != 1:
            return
        before, _, after = payload.partition(literal)
        if not _is_text_alone(delta, before + orjson.dumps(_PROBE) + after, parse):
            return
        self._useless = 0 if self._was_used else self._useless + 1
        self._was_used = False
        self._before, self._after = b"data: " + before + b'"', b'"' + after + b"\n\n\r\n"
        self._from, self._to = len(self._before) - 1, 1 - len(self._after)


def _is_text_alone(delta: Delta, probe: bytes, parse: Callable[[Any], Delta]) -> bool:
    """True when an event says nothing but its text, by the answer the parser gives to a probe."""
    if delta != Delta(delta.text):
        return False
    try:
        return parse(orjson.loads(probe)) == Delta(_PROBE)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError):
        return False
