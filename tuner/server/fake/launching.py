"""Owns how others start the fake server and know it is ready: its command and probe."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from tuner.server.command import GenerationCheck, LaunchCommand, ReadyProbe


def fake_command(
    port: int,
    behaviour: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    env: Mapping[str, str | None] | None = None,
) -> LaunchCommand:
    """The command that starts a fake server: behaviour as JSON, flags by hyphenated name."""
    argv = [sys.executable, "-m", "tuner.server.fake", "--port", str(port)]
    argv += ["--behaviour", json.dumps(dict(behaviour or {}))]
    for name, value in (flags or {}).items():
        argv += [f"--{name}", str(value)]
    return LaunchCommand(tuple(argv), dict(env or {}))


def fake_probe(model: str = "fake", request_timeout_s: float = 10.0) -> ReadyProbe:
    """What ready means for a fake server that serves this model."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Say a word."}],
        "max_tokens": 2,
    }
    return ReadyProbe(
        health_path="/health",
        generation=GenerationCheck("/v1/chat/completions", body, _has_text),
        identity_path="/v1/models",
        identity=_first_model,
        expected_identity=(model,),
        request_timeout_s=request_timeout_s,
    )


def _has_text(answer: Any) -> bool:
    return bool(answer["choices"][0]["message"]["content"])


def _first_model(text: str) -> str | None:
    try:
        return str(json.loads(text)["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError):
        return None
