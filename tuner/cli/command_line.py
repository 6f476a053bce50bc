"""Owns reading a server's command line: which engine, executable, environment, flags.

Knows how SGLang, vLLM and llama.cpp are started and how their flags are abbreviated; what a flag
means is the engines' business.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from tuner.errors import UsageError

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=", re.ASCII)
_PYTHON = re.compile(r"python(\d(\.\d+)?)?\Z")
_DROPPED = ("host", "port", "api-key", "api-key-file", "ssl-keyfile", "ssl-certfile")

_ALIASES: Mapping[str, Mapping[str, str]] = {
    "sglang": {
        "model": "model-path",
        "tp": "tp-size",
        "tensor-parallel-size": "tp-size",
        "dp": "dp-size",
        "data-parallel-size": "dp-size",
        "pipeline-parallel-size": "pp-size",
        "speculative-draft-model": "speculative-draft-model-path",
        "speculative-algo": "speculative-algorithm",
    },
    "vllm": {
        "tp": "tensor-parallel-size",
        "pp": "pipeline-parallel-size",
        "sc": "speculative-config",
    },
    "llamacpp": {
        "m": "model",
        "md": "spec-draft-model",
        "model-draft": "spec-draft-model",
        "c": "ctx-size",
        "np": "parallel",
        "t": "threads",
        "ngl": "n-gpu-layers",
        "gpu-layers": "n-gpu-layers",
        "fa": "flash-attn",
        "b": "batch-size",
        "ub": "ubatch-size",
        "draft": "spec-draft-n-max",
        "draft-n": "spec-draft-n-max",
        "draft-max": "spec-draft-n-max",
        "draft-min": "spec-draft-n-min",
        "draft-p-min": "spec-draft-p-min",
    },
}
MODEL_FLAGS = {"sglang": "model-path", "vllm": "model", "llamacpp": "model"}
DRAFT_FLAGS = {"sglang": "speculative-draft-model-path", "llamacpp": "spec-draft-model"}


@dataclass(frozen=True, slots=True)
class Invocation:
    """A server's command line, read: engine, executable, environment, flags, dropped flags."""

    engine: str
    executable: str
    env: Mapping[str, str]
    flags: dict[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()


def read_command(text: str) -> Invocation:
    """What a shell command starts.

    Raises:
        UsageError: its quotes are unbalanced, or it starts none of the known servers.
    """
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise UsageError(f"--from: must be a shell command, got: {error}.", EXAMPLE) from error
    engine, executable, first, last = _find_server(words)
    env = dict(word.split("=", 1) for word in words[:first] if _ASSIGNMENT.match(word))
    flags = _flags(engine, words[last:])
    dropped = tuple(name for name in _DROPPED if flags.pop(name, None) is not None)
    return Invocation(engine, executable, env, flags, dropped)


EXAMPLE = 'Give it in quotes: tuner init --from "python -m sglang.launch_server --model-path …".'


def _find_server(words: Sequence[str]) -> tuple[str, str, int, int]:
    """Engine, executable, index of the program, index of its first argument."""
    for index, word in enumerate(words):
        name = PurePosixPath(word).name
        after = list(words[index + 1 : index + 3])
        if _PYTHON.match(name) and after[:1] == ["-m"] and after[1:] in _MODULES:
            engine, more = _MODULES_OF[after[1]]
            return engine, _executable(word, after[1]), index, index + 3 + more
        if name in ("sglang", "vllm") and after[:1] == ["serve"]:
            folder = _with_folder(word)
            python = str(PurePosixPath(folder).with_name("python")) if folder else ""
            return name, python, index, index + 2
        if name == "llama-server":
            return "llamacpp", _with_folder(word), index, index + 1
    raise UsageError(
        "--from: must start sglang, vllm or llama-server, got another program.", EXAMPLE
    )


BUNDLED = "tuner.embedded"
_MODULES_OF = {
    "sglang.launch_server": ("sglang", 0),
    "vllm.entrypoints.openai.api_server": ("vllm", 0),
    "vllm.entrypoints.cli.main": ("vllm", 1),
    BUNDLED: ("llamacpp", 0),
}
"""Modules that serve: of which engine, and how many words follow before the arguments."""

_MODULES = [[name] for name in _MODULES_OF]


def _executable(python: str, module: str) -> str:
    return "bundled" if module == BUNDLED and "/" not in python else _with_folder(python)


def _with_folder(word: str) -> str:
    return word if "/" in word else ""


def _flags(engine: str, words: Sequence[str]) -> dict[str, Any]:
    """Flags by canonical name; a positional argument is the model."""
    found: dict[str, Any] = {}
    for name, values in _groups(words):
        known = _ALIASES[engine].get(name, name)
        head, dot, rest = known.partition(".")
        if not name:
            found[MODEL_FLAGS[engine]] = values[-1]
        elif dot:
            head = _ALIASES[engine].get(head, head)
            _nest(_object_at(found, head), rest.split("."), _value_of(values))
        else:
            found[known] = _value_of(values)
    return found


def _groups(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each flag with the values that follow it; words before any flag go under ""."""
    name, values = "", list[str]()
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            if name or values:
                yield name, values
            flag, equals, value = word.lstrip("-").partition("=")
            head, dot, rest = flag.partition(".")
            name = head.replace("_", "-") + dot + rest
            values = [value] if equals else []
        else:
            values.append(word)
    if name or values:
        yield name, values


def _nest(target: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for part in path[:-1]:
        target = _object_at(target, part)
    target[path[-1]] = value


def _object_at(target: dict[str, Any], name: str) -> dict[str, Any]:
    """The object under a name; a plain value that was given there before gives way."""
    found = target.get(name)
    if not isinstance(found, dict):
        found = target[name] = {}
    return found


def _value_of(values: Sequence[str]) -> Any:
    if not values:
        return True
    typed = [_typed(value) for value in values]
    return typed[0] if len(typed) == 1 else typed


def _typed(text: str) -> Any:
    """A number, a switch or JSON where the text is one; else the text."""
    if re.fullmatch(r"-?\d+(\.\d+)?", text, re.ASCII) or text in ("true", "false"):
        return json.loads(text) if not re.match(r"-?0\d", text) else text
    if text[:1] in "{[" and text:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
