"""Owns what an inspection finds: a severity, a sentence, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tuner.drafts.checkpoint import Checkpoint

Severity = Literal["error", "warning", "info"]
"""`error` fails at launch; `warning` silently lowers acceptance; `info` is worth knowing."""

_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about a draft: `rule` is its stable name."""

    rule: str
    severity: Severity
    message: str
    hint: str = ""

    def to_json(self) -> dict[str, str]:
        """Plain values."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "message": self.message,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class Pair:
    """A draft, its target when known, and the longest prompt + output it must serve."""

    draft: Checkpoint
    target: Checkpoint | None = None
    context_tokens: int | None = None
    server_flags: Mapping[str, object] | None = None

    @property
    def target_layers(self) -> int | None:
        """Number of layers of the target."""
        layers = self.target.setting("num_hidden_layers") if self.target else None
        return int(layers) if layers is not None else None

    @property
    def target_hidden(self) -> int | None:
        """Width of the target's hidden states: the target's, or what the draft says of it."""
        if self.target and self.target.setting("hidden_size"):
            return int(self.target.setting("hidden_size"))
        declared = self.draft.setting("target_hidden_size") or self.draft.setting("hidden_size")
        return int(declared) if declared else None

    @property
    def target_architecture(self) -> str:
        """The target's text architecture, "" when it is not known."""
        if self.target is None:
            return ""
        nested = self.target.config.get("text_config")
        names = nested.get("architectures") if isinstance(nested, dict) else None
        return str(names[0]) if names else self.target.architecture


def by_severity(findings: list[Finding]) -> list[Finding]:
    """Worst first, otherwise in the order of the rules."""
    return sorted(findings, key=lambda finding: _ORDER[finding.severity])
