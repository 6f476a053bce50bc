"""Owns reading `llama-server --help` and `--version`: accepted, removed and default values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tuner.engines.base import EngineFacts

_VERSION = re.compile(r"^version:\s*(.+)$", re.MULTILINE)
# A flag's line begins in the first columns (older builds indent long names by seven), its
# explanation's further lines at column 40.
_HEAD = re.compile(r"^ {0,8}(-{1,2}[A-Za-z][\w.-]*(?:,\s+-{1,2}[A-Za-z][\w.-]*)*)")
_NAME = re.compile(r"-{1,2}([A-Za-z][\w.-]*)")
_DEFAULT = re.compile(r"\bdefault: ([^,)\s]+)")
_REMOVED = re.compile(r"argument has been removed[.,]?\s*(.*?)\s*(?:\(env:.*)?$")
_TYPES = re.compile(r"--spec-type\s+\[?([a-z0-9,|-]+)")


def parse_facts(outputs: Mapping[str, str]) -> EngineFacts:
    """Facts from the texts of `help` and `version`; what is not found is unknown."""
    help_text = outputs.get("help", "")
    version = _VERSION.search(outputs.get("version", ""))
    flags: set[str] = set()
    removed: dict[str, str] = {}
    defaults: dict[str, str] = {}
    for names, text in _entries(help_text):
        gone = _REMOVED.search(text)
        if gone:
            removed |= dict.fromkeys(names, gone[1])
            continue
        flags.update(names)
        default = _DEFAULT.search(text)
        defaults |= {name: default[1].strip("'") for name in names} if default else {}
    types = _TYPES.search(help_text)
    return EngineFacts(
        version=version[1].strip() if version else "",
        flags=frozenset(flags) if "model" in flags else None,
        outputs=dict(outputs),
        values={
            "removed": removed,
            "defaults": defaults,
            "spec_types": re.split(r"[,|]", types[1]) if types else [],
        },
    )


def _entries(help_text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Names and explanation of every flag of a help text."""
    names: tuple[str, ...] = ()
    text: list[str] = []
    for line in help_text.splitlines():
        head = _HEAD.match(line)
        if head:
            if names:
                yield names, " ".join(text)
            names, text = tuple(_NAME.findall(head[1])), [line[head.end() :].strip()]
        elif names:
            text.append(line.strip())
    if names:
        yield names, " ".join(text)
