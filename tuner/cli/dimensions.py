"""Owns the dimensions a starter study searches, per engine and method, and their YAML."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*\Z")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


@dataclass(frozen=True, slots=True)
class Dimension:
    """One parameter of a starter's space: a whole range, or choices."""

    name: str
    flag: str
    between: tuple[int, int] | None = None
    choices: tuple[Any, ...] = ()
    when: str = ""

    def including(self, value: Any) -> Dimension:
        """The same with a value of the user's own among those that are tried."""
        if self.between is not None:
            low, high = self.between
            return replace(self, between=(min(low, value), max(high, value)))
        if value in self.choices:
            return self
        return replace(self, choices=tuple(sorted((*self.choices, value))))

    def admits(self, value: Any) -> bool:
        """True for a value of the kind that this parameter has."""
        kinds = {type(each) for each in (self.between or self.choices)}
        return type(value) in kinds or (float in kinds and type(value) is int)

    def render(self, width: int) -> str:
        """Its line, aligned with the others'."""
        values = f"choices: [{', '.join(map(scalar, self.choices))}]"
        if self.between is not None:
            values = f"int: [{self.between[0]}, {self.between[1]}]"
        when = f", when: {self.when}" if self.when else ""
        return f"{self.name + ':':<{width}} {{flag: {self.flag}, {values}{when}}}"


def scalar(value: Any) -> str:
    """A value as YAML that every YAML version reads alike: JSON, plain text where it is safe."""
    is_plain = isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False)


def search_parameters(engine: str, method: str) -> tuple[Dimension, ...]:
    """The parameters worth searching for an engine's speculation method."""
    if engine == "sglang":
        return _SGLANG_NGRAM if method.upper() == "NGRAM" else _SGLANG_TREE
    if engine == "vllm":
        return _VLLM_NGRAM if method == "ngram" else _VLLM_DEPTH
    return _LLAMACPP_DRAFT if "draft" in method else _LLAMACPP_NGRAM


_SGLANG_TREE = (
    Dimension("steps", "speculative-num-steps", between=(1, 7)),
    Dimension("topk", "speculative-eagle-topk", choices=(1, 2, 4, 8)),
    Dimension(
        "draft_tokens", "speculative-num-draft-tokens", choices=(4, 8, 16, 32), when="topk > 1"
    ),
)
_SGLANG_NGRAM = (
    Dimension("draft_tokens", "speculative-num-draft-tokens", choices=(4, 8, 12, 16, 24)),
    Dimension("breadth", "speculative-ngram-max-bfs-breadth", choices=(1, 4, 10)),
)
_VLLM_DEPTH = (Dimension("depth", "speculative-config.num_speculative_tokens", between=(1, 8)),)
_VLLM_NGRAM = (
    Dimension("depth", "speculative-config.num_speculative_tokens", between=(1, 10)),
    Dimension("lookup_max", "speculative-config.prompt_lookup_max", between=(2, 6)),
)
_LLAMACPP_DRAFT = (
    Dimension("depth", "spec-draft-n-max", between=(1, 8)),
    Dimension("p_min", "spec-draft-p-min", choices=(0.0, 0.2, 0.4, 0.6, 0.8)),
)
_LLAMACPP_NGRAM = (
    Dimension("method", "spec-type", choices=("ngram-simple", "ngram-map-k", "ngram-mod")),
    *(
        Dimension(
            f"{kind}_{size}",
            f"spec-ngram-{flag}-size-{size}",
            choices=choices,
            when=f"method == 'ngram-{flag}'",
        )
        for kind, flag in (("simple", "simple"), ("map", "map-k"))
        for size, choices in (("n", (4, 8, 12)), ("m", (8, 16, 48)))
    ),
)
