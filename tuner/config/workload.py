"""Owns the `workload:` section: prompts, blocks, output length, load points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from tuner.config.base import (
    Frozen,
    Issue,
    PositiveDuration,
    exactly_one,
    repeated,
    schema_with_one_of,
)


class PromptsConfig(Frozen):
    """Where prompts come from: a file, or a built-in set; `categories` keeps only some."""

    model_config = schema_with_one_of(("file", "builtin"))

    file: str | None = Field(
        default=None,
        description="JSONL with prompt, messages or turns; ShareGPT JSON; or plain lines.",
    )
    builtin: Literal["mixed"] | None = Field(
        default=None,
        description="A set that comes with the tuner: editing, extraction, chat, code.",
    )
    categories: list[str] | None = Field(
        default=None, description="Keep only prompts of these categories."
    )

    def issues(self) -> Iterator[Issue]:
        """Exactly one source; categories that keep something."""
        yield from exactly_one(self, ("file", "builtin"))
        if self.categories is not None and not self.categories:
            yield Issue("must name a category, got []", "Remove the key.", ("categories",))
        yield from repeated(self.categories or [], ("categories",))


class OutputTokensConfig(Frozen):
    """At most `max` tokens, or `exactly` so many (end-of-text ignored)."""

    model_config = schema_with_one_of(("max", "exactly"))

    max: int | None = Field(default=None, ge=1, description="Stop there or at end-of-text.")
    exactly: int | None = Field(default=None, ge=1, description="Ignore end-of-text.")

    def issues(self) -> Iterator[Issue]:
        """Exactly one of both."""
        yield from exactly_one(self, ("max", "exactly"))


class LoadConfig(Frozen):
    """One load point: closed loop at `concurrency`, open loop at `rate`/s, or a trace file."""

    model_config = schema_with_one_of(("concurrency", "rate", "trace"))

    concurrency: int | None = Field(
        default=None, ge=1, description="So many requests are always running (closed loop)."
    )
    rate: float | None = Field(
        default=None, gt=0, description="So many requests arrive per second (open loop)."
    )
    arrivals: Literal["poisson", "constant"] = Field(
        default="poisson", description="How arrivals at a rate are spaced."
    )
    trace: str | None = Field(default=None, description="File of arrival times.")

    def issues(self) -> Iterator[Issue]:
        """Exactly one kind of load; arrivals only where they are drawn."""
        yield from exactly_one(self, ("concurrency", "rate", "trace"))
        if "arrivals" in self.model_fields_set and self.rate is None:
            yield Issue(
                "must stand beside rate only", "Remove arrivals.", ("arrivals",), is_key=True
            )

    def label(self) -> str:
        """`concurrency 8`, `rate 4/s` or `trace FILE`."""
        if self.concurrency is not None:
            return f"concurrency {self.concurrency}"
        if self.rate is not None:
            return f"rate {self.rate:g}/s" + ("" if self.arrivals == "poisson" else " constant")
        return f"trace {self.trace}"


class LimitsConfig(Frozen):
    """Service limits a request must keep to count as good (`goodput_per_s`); milliseconds."""

    ttft_ms: float | None = Field(default=None, gt=0, description="Time to the first token.")
    tpot_ms: float | None = Field(default=None, gt=0, description="Time per further token.")
    e2e_ms: float | None = Field(default=None, gt=0, description="The whole request.")

    def issues(self) -> Iterator[Issue]:
        """At least one limit."""
        if self.ttft_ms is None and self.tpot_ms is None and self.e2e_ms is None:
            message = "must have at least one of ttft_ms, tpot_ms, e2e_ms, got none"
            yield Issue(message, "Add one, or remove limits.", is_absence=True)


class TimeoutsConfig(Frozen):
    """Patience in seconds while measuring; exceeding one ends the trial as STALLED."""

    first_token: PositiveDuration = Field(default=120.0, description="Until a first token.")
    between_chunks: PositiveDuration = Field(default=60.0, description="Between two chunks.")
    request: PositiveDuration = Field(default=600.0, description="For one request.")
    block: PositiveDuration = Field(default=3600.0, description="For one block of prompts.")


class WorkloadConfig(Frozen):
    """Prompts in fixed blocks, held-out prompts, output length, load points."""

    prompts: PromptsConfig
    blocks: int = Field(
        default=6, ge=1, description="Blocks per trial; trials are compared block by block."
    )
    block_size: int = Field(default=8, ge=1, description="Prompts per block.")
    held_out: int = Field(
        default=48, ge=0, description="Prompts the search never sees, for the confirmation."
    )
    output_tokens: OutputTokensConfig = OutputTokensConfig(max=512)
    temperature: float = Field(default=0.0, ge=0, description="0: greedy.")
    load: list[LoadConfig] = Field(
        default_factory=lambda: [LoadConfig(concurrency=1)],
        description="Load points, all measured in the same launch.",
    )
    warm_up: int | None = Field(
        default=None,
        ge=0,
        description="Requests per load point before the clock starts; null: as many as the "
        "load's concurrency, at least 2.",
    )
    cache: Literal["auto", "unique", "flush", "keep", "off"] = Field(
        default="auto",
        description="Prompt cache: unique prefixes prompts with a tag per launch, flush empties "
        "it before each block (SGLang), keep leaves it alone, off asks for none (llama.cpp).",
    )
    limits: LimitsConfig | None = None
    timeouts: TimeoutsConfig = TimeoutsConfig()

    def issues(self) -> Iterator[Issue]:
        """At least one load point, all of them distinct."""
        if not self.load:
            yield Issue("must have a load point, got []", "Write [{concurrency: 1}].", ("load",))
        yield from repeated([point.label() for point in self.load], ("load",))
