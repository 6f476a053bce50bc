"""Owns the pre-flight: asking SGLang's own resolver about servers that were never launched.

Builds the request and reads the answer; `resolver.py` is what the engine's interpreter runs.
An answer about the machine (no such GPU, no such file) is no verdict about a configuration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.args import FlagValue, ServerArgs
from tuner.engines.base import Resolution
from tuner.engines.sglang import flags as F
from tuner.engines.sglang.effective import effective_flags
from tuner.engines.sglang.render import argv_of
from tuner.marked_lines import marked_json

MARKER = "TUNER-PREFLIGHT "
RESOLVER = Path(__file__).with_name("resolver.py")

_VERDICTS = frozenset({"ValueError", "AssertionError", "TypeError", "NotImplementedError",
                       "RuntimeError", "exit 1", "exit 2"})  # fmt: skip
_ABOUT_THE_MACHINE = re.compile(
    r"requires? .*\bGPUs?\b|requires? (CUDA|Hopper|Blackwell|SM\d)|only supported on .*(SM|GPU)|"
    r"No (CUDA|accelerator|supported device)|is not a (local folder|valid model identifier)|"
    r"does not appear to have a file|Can't load|cannot be found|couldn't connect|No such file|"
    r"Unrecognized model in|not installed|trust_remote_code",
    re.I,
)


def request_of(servers: Sequence[ServerArgs]) -> str:
    """What the resolver reads on standard input."""
    rows = [{"argv": argv_of(args), "env": dict(args.env)} for args in servers]
    return json.dumps({"servers": rows})


def parse_answer(output: str, servers: Sequence[ServerArgs]) -> list[Resolution]:
    """One resolution per server, in order; empty ones when the output is not an answer."""
    answer = marked_json(output, MARKER)
    answer = answer if isinstance(answer, dict) else {}
    rows = answer.get("servers")
    if not isinstance(rows, list) or len(rows) != len(servers):
        return [Resolution() for _ in servers]
    assumed = {F.spelled(str(name)) for name in answer.get("assumed", ())}
    common = answer.get("common") or {}
    return [_resolution(r, a, common, assumed) for r, a in zip(rows, servers, strict=True)]


def _resolution(
    row: Mapping[str, Any], args: ServerArgs, common: Mapping[str, Any], assumed: set[str]
) -> Resolution:
    error = str(row.get("error", ""))
    if error:
        verdict = str(row.get("kind", "")) in _VERDICTS
        return (
            Resolution(error=_one_line(error)) if verdict and not _machine(error) else Resolution()
        )
    effective = effective_flags({**common, **(row.get("resolved") or {})})
    known = {name: value for name, value in effective.items() if name not in assumed}
    return Resolution(canonical=_overridden(args, known), effective=known)


def _machine(error: str) -> bool:
    return _ABOUT_THE_MACHINE.search(error) is not None


def _one_line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return " ".join(lines)[:400]


def _overridden(args: ServerArgs, effective: Mapping[str, Any]) -> ServerArgs:
    """Flags that were asked for, or left to the server as a set of three, as it resolved them."""
    changes: dict[str, FlagValue | None] = {}
    for name, value in args.flags.items():
        if name in effective and _differs(value, effective[name]):
            changes[name] = effective[name]
    if F.algorithm_of(args.flags) in F.TREE_ALGORITHMS:
        three = (F.STEPS, F.TOPK, F.DRAFT_TOKENS)
        changes |= {name: effective[name] for name in three if effective.get(name) is not None}
    return args.replace({k: None if v is False else v for k, v in changes.items()})


def _differs(asked: FlagValue, resolved: Any) -> bool:
    """Values the server spelled differently (1 and 1.0, a list and its text) are the same."""
    if isinstance(asked, bool) or isinstance(resolved, bool):
        return asked is not resolved
    if isinstance(asked, int | float) and isinstance(resolved, int | float):
        return asked != resolved
    if isinstance(asked, int | float) or isinstance(resolved, int | float):
        return str(asked) != str(resolved)
    return False
