"""Owns the `workload:` section: prompts, blocks, output length, load points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from tuner.config.base import Duration, Frozen, Issue, exactly_one, repeated


class PromptsConfig(Frozen):
    """Where prompts come from: a file, or a built-in set; `categories` keeps only some."""

    file: str | None = None
    builtin: Literal["mixed"] | None = None
    categories: list[str] | None = None

    def issues(self) -> Iterator[Issue]:
        """Exactly one source; categories that keep something."""
        yield from exactly_one(self, ("file", "builtin"))
        if self.categories is not None and not self.categories:
            yield Issue("must name a category, got []", "Remove the key.", ("categories",))
        yield from repeated(self.categories or [], ("categories",))


class OutputTokensConfig(Frozen):
    """At most `max` tokens, or `exactly` so many (end-of-text ignored)."""

    max: int | None = Field(default=None, ge=1)
    exactly: int | None = Field(default=None, ge=1)

    def issues(self) -> Iterator[Issue]:
        """Exactly one of both."""
        yield from exactly_one(self, ("max", "exactly"))


class LoadConfig(Frozen):
    """One load point: closed loop at `concurrency`, open loop at `rate`/s, or a trace file."""

    concurrency: int | None = Field(default=None, ge=1)
    rate: float | None = Field(default=None, gt=0)
    arrivals: Literal["poisson", "constant"] = "poisson"
    trace: str | None = None

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

    def issues(self) -> Iterator[Issue]:
        """At least one load point, all of them distinct."""
        if not self.load:
            yield Issue("must have a load point, got []", "Write [{concurrency: 1}].", ("load",))
        yield from repeated([point.label() for point in self.load], ("load",))
