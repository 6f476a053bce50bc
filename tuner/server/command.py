"""Owns what is needed to start one server and to know it is ready; pure values, no process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """An argument vector and environment changes; never a shell string.

    Args:
        argv: program and arguments.
        env: changes to the inherited environment; None removes a variable.
        cwd: working folder, or None for the current one.
        stdin: text for its standard input (one-shot commands only); None: it gets none.
        per_node: options whose value differs on each machine of a deployment that spans several,
            with the environment variable that gives it there.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str | None] = field(default_factory=dict)
    cwd: str | None = None
    stdin: str | None = None
    per_node: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GenerationCheck:
    """One short real generation that proves the server answers: POST `body` to `path`.

    `has_text` says whether the decoded JSON answer holds generated tokens.
    """

    path: str
    body: Mapping[str, Any]
    has_text: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class ReadyProbe:
    """What "ready" means for an engine: health, then identity, then one real generation.

    Args:
        health_path: GET answers 200 when the server can take requests.
        older_health_path: asked instead where `health_path` answers 404: an older version.
        generation: the short real generation.
        identity_path: GET whose text names the served model, or None.
        identity: extracts the served model's name from that text (None: not found).
        expected_identity: names that are accepted (any of them).
        request_timeout_s: patience of one probe request.
        last_words: what a server logs once it is sure to end itself: it is not waited for while
            it writes its diagnostics.
    """

    health_path: str
    generation: GenerationCheck
    identity_path: str | None = None
    identity: Callable[[str], str | None] | None = None
    expected_identity: tuple[str, ...] = ()
    request_timeout_s: float = 30.0
    older_health_path: str | None = None
    last_words: tuple[str, ...] = ()
