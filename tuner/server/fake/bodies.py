"""Owns the JSON of the fake server's routes: what requests ask, how answers end."""

from __future__ import annotations

import json
from typing import Any

from tuner.server.fake.behaviour import Behaviour
from tuner.server.fake.generation import Ask, timings_of, usage_of
from tuner.server.fake.http import Request
from tuner.server.fake.ledger import Truth

_DEFAULT_TOKENS = 128


def prompt_of(body: dict[str, Any]) -> str:
    """The whole prompt of a request as one text."""
    messages = body.get("messages")
    if isinstance(messages, list):
        return "\n".join(str(m.get("content", "")) for m in messages if isinstance(m, dict))
    return str(body.get("prompt", body.get("text", "")))


def ask_of(body: dict[str, Any]) -> Ask:
    """What a request asks for."""
    parameters = body.get("sampling_params") or {}
    limit = (
        body.get("max_tokens")
        or body.get("max_completion_tokens")
        or parameters.get("max_new_tokens")
        or _DEFAULT_TOKENS
    )
    exact = bool(body.get("ignore_eos") or parameters.get("ignore_eos"))
    return Ask(prompt_of(body), int(limit), exact, body.get("cache_prompt", True) is not False)


def delta_event(path: str, text: str) -> str:
    """One streamed event with text; written by hand because it is on the fast path."""
    content = json.dumps(text)
    if path == "/v1/chat/completions":
        choice = f'{{"index":0,"delta":{{"content":{content}}},"finish_reason":null}}'
    elif path == "/v1/completions":
        choice = f'{{"index":0,"text":{content},"finish_reason":null}}'
    else:
        return f'{{"text":{content},"meta_info":{{}}}}'
    return f'{{"id":"fake","object":"chat.completion.chunk","choices":[{choice}]}}'


def last_events(behaviour: Behaviour, request: Request, truth: Truth, reason: str) -> list[str]:
    """The events after the last text: finish reason, usage, timings."""
    if request.path == "/generate":
        meta = {"finish_reason": {"type": reason}, **_native_counts(truth)}
        return [json.dumps({"text": "", "meta_info": meta})]
    delta: dict[str, Any] = {"delta": {}} if "chat" in request.path else {"text": ""}
    finish: dict[str, Any] = {"choices": [{"index": 0, **delta, "finish_reason": reason}]}
    options = request.body.get("stream_options") or {}
    reports = {"usage": usage_of(truth, behaviour), "timings": timings_of(truth, behaviour)}
    if behaviour.usage == "missing" or not options.get("include_usage"):
        return [json.dumps(finish)]
    if behaviour.usage == "last":
        return [json.dumps({**finish, **reports})]
    return [json.dumps(finish), json.dumps({"choices": [], **reports})]


def whole_answer(
    behaviour: Behaviour, path: str, text: str, truth: Truth, reason: str
) -> dict[str, Any]:
    """The answer to a request that did not ask for a stream."""
    if path == "/generate":
        meta = {"finish_reason": {"type": reason}, **_native_counts(truth)}
        return {"text": text, "meta_info": meta}
    message = {"message": {"role": "assistant", "content": text}}
    choice = message if "chat" in path else {"text": text}
    return {
        "id": "fake",
        "choices": [{"index": 0, **choice, "finish_reason": reason}],
        "usage": usage_of(truth, behaviour),
        "timings": timings_of(truth, behaviour),
    }


def _native_counts(truth: Truth) -> dict[str, Any]:
    return {
        "prompt_tokens": truth.prompt_tokens,
        "completion_tokens": truth.output_tokens,
        "cached_tokens": truth.cached_tokens,
        "spec_verify_ct": truth.steps if truth.drafted else 0,
        "spec_accept_token_num": truth.accepted,
        "spec_draft_token_num": truth.drafted,
    }
