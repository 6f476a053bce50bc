"""Owns what a rule looks at: one server's canonical arguments beside the known facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.args import ServerArgs
from tuner.engines.base import EngineFacts
from tuner.engines.vllm.arguments import speculation, whole


@dataclass(frozen=True, slots=True)
class Case:
    """One server and what is known of the installed vLLM, the model and the draft."""

    args: ServerArgs
    facts: EngineFacts

    @property
    def spec(self) -> dict[str, Any]:
        """The speculative mapping; {} without speculation."""
        return speculation(self.args)

    @property
    def method(self) -> str:
        """The speculative method; "" without speculation."""
        return str(self.spec.get("method", ""))

    def size(self, flag: str) -> int:
        """A size flag such as `tensor-parallel-size`, 1 when absent."""
        return whole(self.args.flags.get(flag), 1)

    def known(self, name: str) -> frozenset[str] | None:
        """A list the installed version gave (`methods`, `fields`); None: not known."""
        value = self.facts.values.get(name)
        return frozenset(map(str, value)) if isinstance(value, list | tuple) else None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: name, what must hold, where vLLM says so, and the check ("" when it holds)."""

    name: str
    text: str
    source: str
    check: Callable[[Case], str]
    hint: str = ""


def vocabulary(config: Mapping[str, Any]) -> int | None:
    """Vocabulary size of a checkpoint's config.json; nested text models included."""
    for place in (config, config.get("text_config"), config.get("llm_config")):
        if isinstance(place, Mapping) and isinstance(place.get("vocab_size"), int):
            return int(place["vocab_size"])
    return None
