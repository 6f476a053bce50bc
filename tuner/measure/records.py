"""Owns what one measurement consists of, as plain values; computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt as chat messages (`{"role", "content"}`), with its category and stable id."""

    id: str
    messages: tuple[Mapping[str, str], ...]
    category: str = "other"


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """Closed loop at `concurrency` requests, or open loop at `rate` requests per second."""

    concurrency: int | None = None
    rate: float | None = None
    arrivals: str = "poisson"
    trace: str | None = None

    @property
    def label(self) -> str:
        """Short stable name: `c8`, `r4`, `constant-r4`, `trace`."""
        if self.trace is not None:
            return "trace"
        if self.concurrency is not None:
            return f"c{self.concurrency}"
        prefix = "" if self.arrivals == "poisson" else f"{self.arrivals}-"
        return f"{prefix}r{self.rate:g}"


@dataclass(frozen=True, slots=True)
class Sampling:
    """Generation settings of a workload; `exact_tokens` ignores end-of-text."""

    max_tokens: int = 256
    exact_tokens: bool = False
    temperature: float = 0.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request, in the client's clock (seconds of `time.perf_counter`).

    Args:
        sent_s: when the request's bytes left, connecting not counted; `scheduled_s` when they
            should have.
        first_s: when the first chunk with generated text arrived (None: never).
        last_s: when the last chunk with generated text arrived.
        end_s: when the answer ended or failed.
        chunk_s: arrival times of chunks with text.
        prompt_tokens, output_tokens, cached_tokens: the server's `usage`; None: not reported.
        finish_reason: the server's; None when the answer never finished.
        error: empty for success; otherwise what went wrong (status, error event, timeout).
        text: the generated text (kept for the fidelity check).
        extra: engine-specific last-chunk fields (`timings`, `meta_info`, …).
    """

    prompt_id: str
    category: str
    scheduled_s: float
    sent_s: float
    first_s: float | None
    last_s: float | None
    end_s: float
    chunk_s: tuple[float, ...]
    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    finish_reason: str | None
    error: str = ""
    text: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True when the answer finished without any error."""
        return not self.error and self.finish_reason is not None


@dataclass(frozen=True, slots=True)
class Block:
    """One block of prompts measured at one load point; `start_s`/`end_s` bound its wall time.

    Args:
        client_cpu_s: processor time the client itself spent.
        client_lag_s: how late the client was on average, in seconds (sends and wake-ups).
        peak_in_flight: most requests that were open at once.
        is_client_bound: the client, not the server, limited this block: it does not count.
        gpus: per GPU what was sampled meanwhile: clocks, temperature, power, the share of samples
            by throttle reason, processes of others; () without NVML.
    """

    index: int
    load: LoadPoint
    start_s: float
    end_s: float
    records: tuple[RequestRecord, ...]
    client_cpu_s: float = 0.0
    notes: tuple[str, ...] = ()
    client_lag_s: float = 0.0
    peak_in_flight: int = 0
    is_client_bound: bool = False
    gpus: tuple[Mapping[str, Any], ...] = ()

    @property
    def wall_s(self) -> float:
        """Seconds from the first request sent to the last answer's end."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Texts of the server's metric pages at one instant, by path; a missing path answered
    anything but 200."""

    taken_s: float
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How speculation fared over a window; counts are exact and pooled over requests.

    Args:
        length: acceptance length, bonus token counted: 1 + accepted / steps.
        rate: accepted / drafted; None when drafts are not reported.
        per_position: unconditional share of steps that accepted position 1, 2, …; () unknown.
        steps: verification steps; None: not reported.
        drafted: drafted tokens; None: not reported.
        accepted: accepted draft tokens.
        basis: where the counts came from, such as "timings" or "/metrics".
        is_synthetic: the engine was told what to accept.
    """

    length: float
    rate: float | None
    per_position: tuple[float, ...]
    steps: int | None
    drafted: int | None
    accepted: int
    basis: str
    is_synthetic: bool = False
    by_category: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """All blocks of one load point: pooled metrics and the per-block series of each metric.

    Metric names are those of `metrics.METRICS`, with `_p50/_p90/_p95/_p99` for distributions.
    """

    load: LoadPoint
    metrics: Mapping[str, float]
    per_block: Mapping[str, tuple[float, ...]]
    requests: int
    errors: int
    acceptance: Acceptance | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """All blocks of one launch, summarised per load point, with warnings about them."""

    blocks: tuple[Block, ...]
    summaries: tuple[LoadSummary, ...]
    warnings: tuple[str, ...] = ()

    def at(self, load: LoadPoint) -> LoadSummary:
        """The summary at one load point; raises KeyError when it was not measured."""
        for summary in self.summaries:
            if summary.load == load:
                return summary
        raise KeyError(load.label)
