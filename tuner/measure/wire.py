"""Owns how a prompt becomes a request body and a streamed event becomes a delta.

The OpenAI chat route is here; engines derive theirs from it (extra body fields, other routes).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.measure.records import Prompt, Sampling


@dataclass(frozen=True, slots=True)
class Delta:
    """What one streamed event adds to an answer.

    `text` is new generated text (reasoning included); `text_so_far` replaces all text, for
    routes that stream cumulative text. `usage` values are the server's counts.
    """

    text: str = ""
    text_so_far: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    error: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wire:
    """A streaming route: POST `body(prompt, sampling)` to `path`, `parse` each JSON event."""

    path: str
    body: Callable[[Prompt, Sampling], dict[str, Any]]
    parse: Callable[[Mapping[str, Any]], Delta]
