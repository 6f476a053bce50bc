"""Owns `ServerArgs`, the canonical identity of one server; knows no engine and no process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

FlagValue: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any]
ParamValue: TypeAlias = bool | int | float | str
Params: TypeAlias = Mapping[str, ParamValue]

UNSET = "unset"
"""The choice that leaves a flag or variable out, in spaces and in params."""


def digest_of(value: object) -> str:
    """First 16 hex digits of the SHA-256 of a value's canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ServerArgs:
    """Canonical flags and environment of one server: what is launched, compared and exported.

    Flags carry the engine's own hyphenated names without leading dashes. True is a bare flag; a
    list is a repeated-value flag; a dict is passed as one JSON argument. An environment value of
    None removes an inherited variable. Engines decide the canonical form: two `ServerArgs` that
    start the same server are equal and share a `digest`.
    """

    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Identity of the server these arguments start."""
        return digest_of(self.to_json())

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Plain dictionaries, sorted by key."""
        return {
            "flags": dict(sorted(self.flags.items())),
            "env": dict(sorted(self.env.items())),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, Any]]) -> ServerArgs:
        """Inverse of `to_json`."""
        return cls(flags=dict(data["flags"]), env=dict(data["env"]))

    def replace(self, changes: Mapping[str, FlagValue | None]) -> ServerArgs:
        """A copy with flags set, or removed where the value is None."""
        merged = {**self.flags, **changes}
        return ServerArgs({k: v for k, v in merged.items() if v is not None}, self.env)

    def without(self, names: frozenset[str]) -> ServerArgs:
        """A copy that lacks these flags."""
        return ServerArgs({k: v for k, v in self.flags.items() if k not in names}, self.env)
