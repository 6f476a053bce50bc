"""Owns the `workload:` section: prompts, blocks, output length, load points."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tuner.config.base import Duration, Frozen


class PromptsConfig(Frozen):
    """Where prompts come from: a file, or a built-in set; `categories` keeps only some."""

    file: str | None = None
    builtin: Literal["mixed"] | None = None
    categories: list[str] | None = None


class OutputTokensConfig(Frozen):
    """At most `max` tokens, or `exactly` so many (end-of-text ignored)."""

    max: int | None = Field(default=None, ge=1)
    exactly: int | None = Field(default=None, ge=1)


class LoadConfig(Frozen):
    """One load point: closed loop at `concurrency`, open loop at `rate`/s, or a trace file."""

    concurrency: int | None = Field(default=None, ge=1)
    rate: float | None = Field(default=None, gt=0)
    arrivals: Literal["poisson", "constant"] = "poisson"
    trace: str | None = None


class LimitsConfig(Frozen):
    """Service limits a request must keep to count as good (`goodput_per_s`); milliseconds."""

    ttft_ms: float | None = Field(default=None, gt=0)
    tpot_ms: float | None = Field(default=None, gt=0)
    e2e_ms: float | None = Field(default=None, gt=0)


class TimeoutsConfig(Frozen):
    """Patience in seconds while measuring; exceeding one ends the trial as STALLED."""

    first_token: Duration = Field(default=120.0, gt=0)
    between_chunks: Duration = Field(default=60.0, gt=0)
    request: Duration = Field(default=600.0, gt=0)
    block: Duration = Field(default=3600.0, gt=0)


class WorkloadConfig(Frozen):
    """Prompts in fixed blocks, held-out prompts, output length, load points.

    Args:
        warm_up: requests per load point before the clock starts; None: as many as the load's
            concurrency, at least 2.
        cache: `unique` prefixes prompts with a seeded tag per launch; `flush` empties the cache
            between blocks; `keep` leaves it alone; `off` asks the engine not to cache.
    """

    prompts: PromptsConfig
    blocks: int = Field(default=6, ge=1)
    block_size: int = Field(default=8, ge=1)
    held_out: int = Field(default=48, ge=0)
    output_tokens: OutputTokensConfig = OutputTokensConfig(max=512)
    temperature: float = Field(default=0.0, ge=0)
    load: list[LoadConfig] = Field(default_factory=lambda: [LoadConfig(concurrency=1)])
    warm_up: int | None = Field(default=None, ge=0)
    cache: Literal["auto", "unique", "flush", "keep", "off"] = "auto"
    limits: LimitsConfig | None = None
    timeouts: TimeoutsConfig = TimeoutsConfig()
