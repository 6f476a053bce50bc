"""Owns what is asked of a running llama-server: readiness, measured route, effective values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from tuner.args import ServerArgs
from tuner.engines.base import Drift
from tuner.engines.llamacpp.canonical import speculative_types
from tuner.measure.wire import Wire, openai_chat
from tuner.server.command import GenerationCheck, ReadyProbe

EFFECTIVE_PATH = "/slots"


def wire(args: ServerArgs) -> Wire:
    """The chat route with the prompt cache off; `timings` are kept for the acceptance."""
    return openai_chat(
        model_names(args)[0],
        extra_body={"cache_prompt": False},
        extra_keys=("timings",),
        disables_cache=True,
    )


def probe(args: ServerArgs) -> ReadyProbe:
    """Health (503 while loading), the served model's name, a short generation."""
    body = {
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 4,
        "temperature": 0,
        "cache_prompt": False,
    }
    return ReadyProbe(
        health_path="/health",
        generation=GenerationCheck("/v1/chat/completions", body, has_text),
        identity_path="/v1/models",
        identity=served_model,
        expected_identity=model_names(args),
    )


def model_names(args: ServerArgs) -> tuple[str, ...]:
    """Names under which the server may present its model: aliases first, then the path's."""
    aliases = [part for part in str(args.flags.get("alias", "")).split(",") if part]
    model = str(args.flags.get("model", ""))
    path = PurePosixPath(model)
    return tuple(dict.fromkeys([*aliases, model, path.name, path.stem]))


def served_model(text: str) -> str | None:
    """The first model's id in a `/v1/models` answer."""
    try:
        name = json.loads(text)["data"][0]["id"]
    except (ValueError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) else None


def has_text(answer: Any) -> bool:
    """True when an answer holds at least one generated token."""
    try:
        message = answer["choices"][0]["message"]
        tokens = (answer.get("usage") or {}).get("completion_tokens") or 0
        return bool(message.get("content") or message.get("reasoning_content") or tokens > 0)
    except (AttributeError, LookupError, TypeError):
        return False


def parse_effective(text: str) -> dict[str, Any]:
    """Values of a `/slots` answer by flag name.

    `spec-type` is what the server really does: "none" where it was asked to draft but could not
    (llama-server then starts all the same).
    """
    try:
        slots = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(slots, list) or not slots or not all(isinstance(s, dict) for s in slots):
        return {}
    found: dict[str, Any] = {"parallel": len(slots)}
    sizes = [slot["n_ctx"] for slot in slots if isinstance(slot.get("n_ctx"), int)]
    if sizes:
        found["slot-ctx-size"] = min(sizes)
    method = _method(slots)
    return found if method is None else {**found, "spec-type": method}


def _method(slots: list[dict[str, Any]]) -> str | None:
    states = [slot["speculative"] for slot in slots if isinstance(slot.get("speculative"), bool)]
    if not states:
        return None
    if not all(states):
        return "none"
    for slot in slots:
        params = slot.get("params")
        named = params.get("speculative.types") if isinstance(params, dict) else None
        if isinstance(named, str) and named != "none":
            return ",".join(speculative_types(named))
    return "some"


def drift(args: ServerArgs, effective: Mapping[str, Any]) -> list[Drift]:
    """Where the running server is not what was asked for."""
    return [*_speculation_drift(args, effective), *_size_drift(args, effective)]


def _speculation_drift(args: ServerArgs, effective: Mapping[str, Any]) -> list[Drift]:
    actual = effective.get("spec-type")
    asked = str(args.flags.get("spec-type", "none"))
    if actual is None or actual == asked or (actual == "some" and asked != "none"):
        return []
    message = "the server started without speculation: see its log for `speculative decoding`"
    return [Drift("spec-type", asked, str(actual), message=message if actual == "none" else "")]


def _size_drift(args: ServerArgs, effective: Mapping[str, Any]) -> list[Drift]:
    found: list[Drift] = []
    slots = args.flags.get("parallel")
    actual = effective.get("parallel")
    if isinstance(slots, int) and slots > 0 and isinstance(actual, int) and actual != slots:
        found.append(Drift("parallel", str(slots), str(actual), is_confounder=True))
    context, each = args.flags.get("ctx-size"), effective.get("slot-ctx-size")
    if isinstance(context, int) and context > 0 and isinstance(each, int) and actual:
        whole = each if args.flags.get("kv-unified") else each * actual
        # llama.cpp rounds a slot's context up to a multiple of 256
        if abs(whole - context) > 256 * actual:
            found.append(Drift("ctx-size", str(context), str(whole), is_confounder=True))
    return found
