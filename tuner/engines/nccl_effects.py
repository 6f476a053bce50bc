"""Owns whether NCCL variables took effect: what a worker has, what NCCL says it took, what
bypasses NCCL, what changes nothing.

Serves SGLang and vLLM alike. Pure: it reads texts that others fetched from a running server or
from one untimed probe with NCCL_DEBUG=INFO and NCCL_DEBUG_FILE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tuner.engines.nccl import VARIABLES


def parse_environ(data: str) -> dict[str, str]:
    """The text of /proc/PID/environ (NUL-separated) as a mapping; total on any text."""
    pairs = (entry.partition("=") for entry in data.split("\0") if "=" in entry)
    return {name: value for name, _, value in pairs if name}


def overwritten(asked: Mapping[str, str | None], worker: Mapping[str, str]) -> dict[str, str]:
    """Variables whose value in a worker is not what was asked for: name to the worker's value.

    A variable asked to be absent (None) that the worker has, and one that it lacks (""), count.
    """
    wrong: dict[str, str] = {}
    for name, value in asked.items():
        if value != worker.get(name):
            wrong[name] = worker.get(name, "")
    return wrong


_ECHO = re.compile(r"\b(NCCL_[A-Z0-9_]+) set by environment to (\S.*?)\s*$", re.M)
_VERSION = re.compile(r"NCCL version ([0-9][\w.+-]*)")


def parse_echo(debug_text: str) -> dict[str, str]:
    """Values NCCL says it took, from the text of an NCCL_DEBUG=INFO file (the last one wins)."""
    return {name: value.rstrip(".") for name, value in _ECHO.findall(debug_text)}


def parse_version(debug_text: str) -> str:
    """NCCL's version from a debug text, "" when it does not say."""
    match = _VERSION.search(debug_text)
    return match[1] if match else ""


def not_taken(asked: Mapping[str, str | None], debug_text: str) -> dict[str, str]:
    """Variables whose echo differs from what was asked: name to what NCCL understood.

    A level that an older library does not know is echoed as 0, which switches it off
    (NCCL issue 332). Variables that NCCL does not echo are left out.
    """
    echo = parse_echo(debug_text)
    return {
        name: echo[name]
        for name, value in asked.items()
        if value is not None and name in echo and not _same(name, value, echo[name])
    }


def _same(name: str, asked: str, echoed: str) -> bool:
    variable = VARIABLES.get(name)
    if asked.lower() == echoed.lower():
        return True
    if variable is not None and variable.kind == "level" and echoed.isdigit():
        return (echoed == "0") == (asked.lower() in {"loc", "0"})  # numbers differ by version
    return False


def bypassed(effective: Mapping[str, object], gpus: int, full_nvlink: bool | None) -> str:
    """Why small all-reduces would not touch NCCL at all; "" when they do or it is unknown.

    Args:
        effective: the server's effective flags.
        gpus: ranks on this node.
        full_nvlink: whether every pair of them is linked; None when unknown.
    """
    if effective.get("disable-custom-all-reduce") is True or gpus < 2:
        return ""
    if effective.get("enable-torch-symm-mem") is True:
        return "torch symmetric memory reduces small messages without NCCL"
    if effective.get("enable-mscclpp") is True:
        return "mscclpp reduces small messages without NCCL"
    if full_nvlink or gpus == 2:
        return "custom all-reduce serves messages up to 8 or 16 MB without NCCL"
    return ""


def inert(outcomes: Sequence[tuple[Mapping[str, object], float]], noise: float) -> list[str]:
    """Parameters whose every change left the value within the noise, by name.

    Only pairs of trials that differ in nothing else count; a parameter without such a pair is
    not called inert.

    Args:
        outcomes: a trial's parameters and its value (above 0), for each finished trial.
        noise: relative difference that means nothing, such as 0.02.
    """
    ratios: dict[str, list[float]] = {}
    for index, (one, value) in enumerate(outcomes):
        for other, reference in outcomes[index + 1 :]:
            names = _differing(one, other)
            if len(names) == 1 and value > 0 and reference > 0:
                ratios.setdefault(names[0], []).append(abs(value / reference - 1))
    return sorted(name for name, seen in ratios.items() if max(seen) <= noise)


def _differing(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    names: Iterable[str] = {**one, **other}
    return [name for name in names if one.get(name) != other.get(name)]
