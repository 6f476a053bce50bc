"""Owns what each number means: its formula over request records, its unit, its direction.

Definitions follow the generators people compare with (vLLM's and SGLang's serving benchmarks,
NVIDIA's GenAI-Perf) unless a docstring says otherwise. Tokens are the server's `usage`; a chunk
is never taken for a token. Failed requests give no tokens, and their time counts.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tuner.config.workload import LimitsConfig
from tuner.measure.records import (
    Acceptance,
    Block,
    LoadPoint,
    LoadSummary,
    Measurement,
    RequestRecord,
)
from tuner.measure.series import block_warnings

PERCENTILES = (50, 90, 95, 99)

Values = Callable[[RequestRecord], Sequence[float]]
Rate = Callable[[Sequence[Block], LimitsConfig | None], float]


@dataclass(frozen=True, slots=True)
class Metric:
    """A measured quantity.

    Args:
        direction: "maximize" or "minimize".
        doc: the formula and where it comes from.
        values: per request, for metrics that are distributions; the metric is their mean.
        rate: over whole blocks, for all others; None when records cannot tell (acceptance).
        percentile: which percentile of `values`; None: their mean.
    """

    name: str
    unit: str
    direction: str
    doc: str
    values: Values | None = None
    rate: Rate | None = None
    percentile: int | None = None

    def over(self, blocks: Sequence[Block], limits: LimitsConfig | None = None) -> float:
        """The metric over blocks pooled together; NaN when nothing was measured."""
        if self.rate is not None:
            return self.rate(blocks, limits)
        return math.nan if self.values is None else self.of(_pooled(self.values, blocks))

    def of(self, pooled: np.ndarray) -> float:
        """The metric of values that were pooled already; NaN when there are none."""
        if not len(pooled):
            return math.nan
        if self.percentile is None:
            return float(pooled.mean())
        return float(np.percentile(pooled, self.percentile))


def _pooled(values: Values, blocks: Sequence[Block]) -> np.ndarray:
    done = (record for block in blocks for record in block.records if record.ok)
    return np.fromiter((value for record in done for value in values(record)), float)


# ---- per request -------------------------------------------------------------------------------
def ttft_ms(record: RequestRecord) -> float:
    """Time to first token: first chunk with text minus sending, `1000 (first - sent)`."""
    return math.nan if record.first_s is None else 1000 * (record.first_s - record.sent_s)


def tpot_ms(record: RequestRecord) -> float:
    """Time per output token after the first: `1000 (last - first) / (output_tokens - 1)`.

    From token counts, never from chunks: speculation delivers several tokens per chunk. NaN for
    answers of one token or one arrival, which say nothing about it.
    """
    tokens = record.output_tokens or 0
    if record.first_s is None or record.last_s is None or tokens < 2:
        return math.nan
    if record.last_s <= record.first_s:
        return math.nan
    return 1000 * (record.last_s - record.first_s) / (tokens - 1)


def e2e_ms(record: RequestRecord) -> float:
    """End-to-end time of an answer: `1000 (end - sent)`."""
    return 1000 * (record.end_s - record.sent_s)


def inter_chunk_ms(record: RequestRecord) -> list[float]:
    """Times between consecutive chunks with text: what a reader sees; not a token time."""
    return [1000 * (after - before) for before, after in pairwise(record.chunk_s)]


def is_good(record: RequestRecord, limits: LimitsConfig | None) -> bool:
    """True when a request succeeded within every limit that is set."""
    if not record.ok:
        return False
    pairs = (
        (limits.ttft_ms, ttft_ms(record)),
        (limits.tpot_ms, tpot_ms(record)),
        (limits.e2e_ms, e2e_ms(record)),
    ) if limits else ()  # fmt: skip
    return all(limit is None or not value > limit for limit, value in pairs)


# ---- over blocks -------------------------------------------------------------------------------
def _per_wall(count: float, blocks: Sequence[Block]) -> float:
    wall = sum(block.wall_s for block in blocks)
    return count / wall if wall > 0 else math.nan


def _output_rate(blocks: Sequence[Block], limits: LimitsConfig | None) -> float:
    tokens = sum(r.output_tokens or 0 for b in blocks for r in b.records if r.ok)
    return _per_wall(tokens, blocks)


def _total_rate(blocks: Sequence[Block], limits: LimitsConfig | None) -> float:
    done = [r for b in blocks for r in b.records if r.ok]
    return _per_wall(sum((r.output_tokens or 0) + (r.prompt_tokens or 0) for r in done), blocks)


def _request_rate(blocks: Sequence[Block], limits: LimitsConfig | None) -> float:
    return _per_wall(sum(r.ok for b in blocks for r in b.records), blocks)


def _goodput(blocks: Sequence[Block], limits: LimitsConfig | None) -> float:
    return _per_wall(sum(is_good(r, limits) for b in blocks for r in b.records), blocks)


def _error_rate(blocks: Sequence[Block], limits: LimitsConfig | None) -> float:
    count = sum(len(block.records) for block in blocks)
    return sum(not r.ok for b in blocks for r in b.records) / count if count else math.nan


def _steady_rate(blocks: Sequence[Block], limits: LimitsConfig | None) -> float:
    windows = [steady_window(block) for block in blocks]
    seconds = sum(stop - start for start, stop in windows)
    tokens = sum(
        _tokens_within(record, *window)
        for block, window in zip(blocks, windows, strict=True)
        for record in block.records
        if record.ok
    )
    return tokens / seconds if seconds > 0 else math.nan


def steady_window(block: Block) -> tuple[float, float]:
    """Start and end of the time during which the load was at its peak.

    From the last of the first `peak` requests being sent until the last request is sent: before
    it the load ramps up, after it it ramps down. A block that sends everything at once has no
    such time and gives its whole wall time.
    """
    sent = sorted(record.sent_s for record in block.records)
    peak = min(max(block.peak_in_flight, 1), len(sent))
    if peak <= 1 or len(sent) < 2 * peak:
        return block.start_s, block.end_s
    return sent[peak - 1], sent[-1]


def _tokens_within(record: RequestRecord, start_s: float, stop_s: float) -> float:
    """Output tokens that arrived within a time, each chunk holding its share of them."""
    if not record.chunk_s:
        return 0.0
    inside = bisect_right(record.chunk_s, stop_s) - bisect_right(record.chunk_s, start_s)
    return (record.output_tokens or 0) * inside / len(record.chunk_s)


def _one(value: Callable[[RequestRecord], float]) -> Values:
    def values(record: RequestRecord) -> list[float]:
        number = value(record)
        return [number] if math.isfinite(number) else []

    return values


def _doc(function: Callable[..., object]) -> str:
    return (function.__doc__ or "").split("\n\n")[0]


_UP, _DOWN = "maximize", "minimize"

_BASE = (
    Metric(
        "output_tokens_per_s", "tok/s", _UP,
        "Output tokens of successful requests over the wall time of all: "
        "`sum output_tokens / sum (end - start)` (vLLM: output token throughput).",
        rate=_output_rate,
    ),
    Metric(
        "steady_tokens_per_s", "tok/s", _UP,
        "Output tokens that arrived while the load was at its peak, over that time: ramp-up and "
        "ramp-down excluded.",
        rate=_steady_rate,
    ),
    Metric(
        "total_tokens_per_s", "tok/s", _UP,
        "Prompt and output tokens of successful requests over the wall time of all.",
        rate=_total_rate,
    ),
    Metric(
        "requests_per_s", "1/s", _UP, "Successful requests over the wall time of all.",
        rate=_request_rate,
    ),
    Metric(
        "goodput_per_s", "1/s", _UP,
        "Requests that succeeded within every limit of `workload.limits`, over the wall time of "
        "all (DistServe's goodput).",
        rate=_goodput,
    ),
    Metric(
        "error_rate", "share", _DOWN, "Requests that failed, over all requests.",
        rate=_error_rate,
    ),
    Metric(
        "acceptance_length", "tokens", _UP,
        "Tokens per verification step, bonus token counted: `1 + accepted / steps`, pooled.",
    ),
    Metric(
        "acceptance_rate", "share", _UP, "Accepted over drafted tokens, pooled: "
        "`accepted / drafted`.",
    ),
    Metric("ttft_ms", "ms", _DOWN, _doc(ttft_ms), values=_one(ttft_ms)),
    Metric("tpot_ms", "ms", _DOWN, _doc(tpot_ms), values=_one(tpot_ms)),
    Metric("inter_chunk_ms", "ms", _DOWN, _doc(inter_chunk_ms), values=inter_chunk_ms),
    Metric("e2e_ms", "ms", _DOWN, _doc(e2e_ms), values=_one(e2e_ms)),
)  # fmt: skip


def _percentile(metric: Metric, percentile: int) -> Metric:
    name = f"{metric.name.removesuffix('_ms')}_p{percentile}_ms"
    doc = f"Percentile {percentile} over requests. {metric.doc}"
    return Metric(name, metric.unit, metric.direction, doc, metric.values, None, percentile)


def _catalogue() -> dict[str, Metric]:
    metrics = {metric.name: metric for metric in _BASE}
    for metric in _BASE:
        if metric.values is not None:
            for percentile in PERCENTILES:
                derived = _percentile(metric, percentile)
                metrics[derived.name] = derived
    return metrics


METRICS: Mapping[str, Metric] = _catalogue()
"""Every metric by name; distributions also as `ttft_p95_ms` and so on."""


def block_value(name: str, block: Block, limits: LimitsConfig | None = None) -> float:
    """One metric of one block; NaN when the block does not tell or was client bound.

    Raises KeyError for an unknown name.
    """
    metric = METRICS[name]
    return math.nan if block.is_client_bound else metric.over([block], limits)


def summarize(
    blocks: Sequence[Block],
    acceptance: Mapping[LoadPoint, Acceptance] | None = None,
    limits: LimitsConfig | None = None,
    *,
    gpus: int = 0,
) -> Measurement:
    """All blocks of a launch, summarised per load point in the order they were first measured.

    Client-bound blocks are kept and warned about, and count in no figure. With `gpus`, the
    throughput per GPU is added.
    """
    loads = list(dict.fromkeys(block.load for block in blocks))
    summaries, warnings = [], []
    for load in loads:
        measured = [block for block in blocks if block.load == load]
        accepted = (acceptance or {}).get(load)
        summaries.append(_summary(load, measured, accepted, limits, gpus))
        warnings += [f"{load.label}: {text}" for text in block_warnings(measured)]
    return Measurement(tuple(blocks), tuple(summaries), tuple(warnings))


def _summary(
    load: LoadPoint,
    measured: Sequence[Block],
    acceptance: Acceptance | None,
    limits: LimitsConfig | None,
    gpus: int,
) -> LoadSummary:
    counted = [block for block in measured if not block.is_client_bound]
    metrics = _every(counted, limits)
    if acceptance is not None:
        metrics["acceptance_length"] = acceptance.length
        if acceptance.rate is not None:
            metrics["acceptance_rate"] = acceptance.rate
    if gpus:
        metrics["output_tokens_per_s_per_gpu"] = metrics["output_tokens_per_s"] / gpus
    return LoadSummary(
        load=load,
        metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
        per_block=_per_block(measured, limits),
        requests=sum(len(block.records) for block in measured),
        errors=sum(not record.ok for block in measured for record in block.records),
        acceptance=acceptance,
    )


def _every(blocks: Sequence[Block], limits: LimitsConfig | None) -> dict[str, float]:
    """Every metric over the same blocks: what percentiles share is pooled once."""
    shared = {metric.values for metric in METRICS.values() if metric.values}
    pooled = {values: _pooled(values, blocks) for values in shared}
    return {
        name: metric.of(pooled[metric.values]) if metric.values else metric.over(blocks, limits)
        for name, metric in METRICS.items()
    }


def _per_block(
    blocks: Sequence[Block], limits: LimitsConfig | None
) -> dict[str, tuple[float, ...]]:
    nothing = dict.fromkeys(METRICS, math.nan)
    each = [nothing if block.is_client_bound else _every([block], limits) for block in blocks]
    series = {name: tuple(metrics[name] for metrics in each) for name in METRICS}
    return {name: values for name, values in series.items() if np.isfinite(values).any()}
