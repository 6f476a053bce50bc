"""Owns the questions put to the installed vLLM (see `inside`), and the reading of its answers.

One asks for version, flags, speculative methods and fields; the other lets vLLM's own parser and
configuration classes resolve servers, without loading a model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.args import FlagValue, ServerArgs
from tuner.engines.base import EngineFacts, Resolution
from tuner.engines.vllm.arguments import SPECULATIVE, argv, speculation
from tuner.engines.vllm.inside import MARK
from tuner.marked_lines import marked_json

FACTS = "facts"
_PROGRAM = Path(__file__).with_name("inside.py")
_MOST_BYTES = 1_500_000
"""Linux takes about 2 MB of arguments in all; servers beyond that are not asked about."""

_ABOUT_THE_SERVER = frozenset(
    {"SystemExit", "ValueError", "ValidationError", "NotImplementedError", "ImportError",
     "AssertionError", "TypeError", "KeyError", "AttributeError"}
)  # fmt: skip
"""Errors that say something about the server; others (no GPU, no network) do not."""
_NOT_ABOUT_IT = ("device type", "huggingface.co", "connect", "No CUDA", "NVML")


def facts_argv(interpreter: str) -> tuple[str, ...]:
    """Arguments that print the installed version's facts."""
    return (interpreter, str(_PROGRAM), "facts")


def resolve_argv(interpreter: str, servers: Sequence[ServerArgs]) -> tuple[str, ...]:
    """Arguments that resolve servers with vLLM's own parser, in order."""
    shared = _shared(servers)
    asked = [json.dumps(argv(shared))]
    size = len(asked[0])
    for server in servers:
        own = {k: v for k, v in server.flags.items() if k not in shared}
        asked.append(json.dumps(argv(own)))
        size += len(asked[-1])
        if size > _MOST_BYTES:
            return (interpreter, str(_PROGRAM), "resolve", *asked[:-1])
    return (interpreter, str(_PROGRAM), "resolve", *asked)


def _shared(servers: Sequence[ServerArgs]) -> dict[str, FlagValue]:
    first = dict(servers[0].flags) if servers else {}
    texts = {key: json.dumps(value) for key, value in first.items()}
    return {
        key: value
        for key, value in first.items()
        if all(key in s.flags and json.dumps(s.flags[key]) == texts[key] for s in servers)
    }


def read_facts(output: str) -> EngineFacts:
    """Facts from the program's output; unknown facts when it says nothing readable."""
    found = marked_json(output, MARK)
    if not isinstance(found, dict):
        return EngineFacts(outputs={FACTS: output})
    flags = found.get("flags")
    return EngineFacts(
        outputs={FACTS: output},
        version=str(found.get("version", "")),
        flags=frozenset(map(str, flags)) if isinstance(flags, list) else None,
        values={key: found[key] for key in sorted(found) if key not in ("version", "flags")},
    )


def read_resolutions(output: str, servers: Sequence[ServerArgs]) -> list[Resolution]:
    """One resolution per server; empty ones when the program gave no readable answer."""
    found = marked_json(output, MARK)
    answers = list(found) if isinstance(found, list) and len(found) <= len(servers) else []
    answers += [None] * (len(servers) - len(answers))
    return [_resolution(one, args) for one, args in zip(answers, servers, strict=True)]


def _resolution(found: Any, args: ServerArgs) -> Resolution:
    if not isinstance(found, Mapping):
        return Resolution()
    if "error" in found:
        return Resolution(error=_server_error(str(found["error"]), str(found.get("kind", ""))))
    effective = found.get("effective")
    if not isinstance(effective, Mapping):
        return Resolution()
    return Resolution(canonical=_as_resolved(args, effective), effective=dict(effective))


def _as_resolved(args: ServerArgs, effective: Mapping[str, Any]) -> ServerArgs:
    """The same server with the method the installed version settled on."""
    spec = speculation(args)
    method = effective.get(f"{SPECULATIVE}.method")
    if not spec or not isinstance(method, str) or method == spec.get("method"):
        return args
    return args.replace({SPECULATIVE: {**spec, "method": method}})


def _server_error(text: str, kind: str) -> str:
    """One line in vLLM's words when the error is about the server, else ""."""
    if kind not in _ABOUT_THE_SERVER or any(mark in text for mark in _NOT_ABOUT_IT):
        return ""
    return one_line(text) or kind


def one_line(text: str) -> str:
    """The telling line of an exception's text: pydantic's message without its frame."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and "validation error" in lines[0]:
        body = [line for line in lines[1:] if not line.startswith("For further information")]
        lines = [" ".join(body).partition(" [type=")[0].removeprefix("Value error, ")]
    line = lines[0] if lines else ""
    return line if len(line) <= 300 else f"{line[:297]}..."
