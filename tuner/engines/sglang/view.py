"""Owns reading one server's flags and environment as typed values, for the rules.

Nothing here judges; what is absent is None or the value SGLang documents as its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tuner.args import ServerArgs
from tuner.engines.base import EngineFacts
from tuner.engines.sglang import flags as F

_TRUE = frozenset({"1", "true", "yes", "y"})


@dataclass(frozen=True)
class ServerView:
    """One server as the rules see it; `facts` holds the checkpoints' config.json."""

    args: ServerArgs
    facts: EngineFacts = field(default_factory=EngineFacts)

    @cached_property
    def algorithm(self) -> str:
        """The resolved algorithm's name, "" for off."""
        return F.algorithm_of(self.args.flags)

    @property
    def steps(self) -> int | None:
        """Draft steps, None when unset."""
        return self.integer(F.STEPS)

    @property
    def topk(self) -> int | None:
        """Branching factor, None when unset; for NGRAM its breadth takes this place."""
        if self.algorithm == "NGRAM":
            return self.integer(F.BREADTH, 10)
        return self.integer(F.TOPK)

    @property
    def draft_tokens(self) -> int | None:
        """Tokens per verification, bonus included, None when unset."""
        return self.integer(F.DRAFT_TOKENS)

    def integer(self, name: str, default: int | None = None) -> int | None:
        """A flag as an integer."""
        value = F.as_int(self.args.flags.get(name))
        return default if value is None else value

    def number(self, name: str, default: float) -> float:
        """A flag as a float; the default when absent or unreadable."""
        try:
            return float(str(self.args.flags.get(name, default)))
        except ValueError:
            return default

    def text(self, name: str) -> str:
        """A flag as text, "" when absent."""
        value = self.args.flags.get(name)
        return "" if value is None else str(value)

    def on(self, name: str) -> bool:
        """True when a switch is set."""
        return self.args.flags.get(name) is True

    def env_on(self, name: str) -> bool:
        """True when an environment switch is set to a true value."""
        value = self.args.env.get(name)
        return value is not None and value.strip().lower() in _TRUE

    @property
    def device(self) -> str:
        """The device's name; "" when the server chooses."""
        return self.text("device")

    @property
    def backends(self) -> tuple[str, ...]:
        """Attention backends named for the target, general one first."""
        names = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
        return tuple(value for name in names if (value := self.text(name)))

    @property
    def decode_backend(self) -> str:
        """The backend of target decode, "" when the server chooses."""
        return self.text("decode-attention-backend") or self.text("attention-backend")

    @property
    def draft_backend(self) -> str:
        """The backend the draft decodes with, "" when the server chooses."""
        return self.text("speculative-draft-attention-backend") or self.decode_backend

    @property
    def page_size(self) -> int:
        """Page size after the backends that force one had their say (defaults of CUDA)."""
        asked = self.integer("page-size", 1) or 1
        if "flashmla" in self.backends:
            return 64
        if {"trtllm_mla", "cutedsl_mla"} & set(self.backends):
            return asked if asked in (32, 64) else 64
        return asked

    @property
    def attention_dp(self) -> bool:
        """True when attention runs data-parallel."""
        return self.on("enable-dp-attention") or (self.integer("attn-dp-size", 1) or 1) > 1

    @property
    def ranks(self) -> int:
        """Processes that reduce with each other: tensor times pipeline times expert groups."""
        sizes = (self.integer(name, 1) or 1 for name in ("tp-size", "pp-size", "dp-size"))
        product = 1
        for size in sizes:
            product *= size
        return product

    def target(self, key: str) -> Any:
        """A key of the target's config.json, in `text_config` where it is nested."""
        return _of(self.facts.target_config, key)

    def draft(self, key: str) -> Any:
        """A key of the draft's config.json."""
        return _of(self.facts.draft_config, key)

    def architectures(self, which: str) -> frozenset[str]:
        """Architecture names of `target` or `draft`; empty when the config is unknown."""
        config = self.facts.target_config if which == "target" else self.facts.draft_config
        names = config.get("architectures") or ()
        return frozenset(str(name) for name in names)


def _of(config: Mapping[str, Any], key: str) -> Any:
    nested = config.get("text_config")
    if isinstance(nested, Mapping) and key in nested:
        return nested[key]
    return config.get(key)
