"""Owns SGLang's streamed chat route: what is asked for besides OpenAI's fields, what comes back.

The chat route is what deployments serve, so it is what is measured. On 0.5.23 it ends with a
chunk of its own, before the usage chunk, that holds the answer's speculative counts and cached
tokens under `sglext`; older versions ignore the request for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.measure.wire import Delta, Wire, openai_chat
from tuner.server.command import GenerationCheck

_EXTENSION = "sglext"


def chat_wire(model: str, is_speculative: bool) -> Wire:
    """The streamed chat route; a speculative server is asked for its counts."""
    extra: dict[str, Any] = {"return_cached_tokens_details": True}
    if is_speculative:
        extra["return_spec_tokens_details"] = True
    wire = openai_chat(model, extra_body=extra, extra_keys=(_EXTENSION,))

    def parse(event: Mapping[str, Any]) -> Delta:
        return _with_cached_tokens(wire.parse(event))

    return replace(wire, parse=parse)


def _with_cached_tokens(delta: Delta) -> Delta:
    extension = delta.extra.get(_EXTENSION)
    if not isinstance(extension, Mapping):
        return delta
    details = extension.get("cached_tokens_details")
    if delta.cached_tokens is not None or not isinstance(details, Mapping):
        return delta
    counts = [v for v in details.values() if isinstance(v, int) and not isinstance(v, bool)]
    return delta._replace(cached_tokens=sum(counts))


def generation_check(model: str) -> GenerationCheck:
    """Four tokens of a real answer."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 4,
        "temperature": 0,
        "ignore_eos": True,
    }
    return GenerationCheck("/v1/chat/completions", body, has_text=_has_tokens)


def _has_tokens(answer: Any) -> bool:
    """Tokens were generated; a model may well spend them on reasoning or on no printable text."""
    if not isinstance(answer, Mapping) or not answer.get("choices"):
        return False
    usage = answer.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    return isinstance(count, int) and count > 0


def served_model(text: str) -> str | None:
    """The first model that `/v1/models` names; None when it names none."""
    try:
        data = json.loads(text)
    except ValueError:
        return None
    models = data.get("data") if isinstance(data, dict) else None
    first = models[0] if isinstance(models, list) and models else {}
    name = first.get("id") if isinstance(first, dict) else None
    return str(name) if name else None
