"""Owns which metrics a study may name, and the direction in which each is better.

The formulas are `tuner.measure.metrics`' own; a test holds both lists together.
"""

from __future__ import annotations

from tuner.config.base import Issue, nearest

PERCENTILES = (50, 90, 95, 99)
LATENCIES = ("ttft_ms", "tpot_ms", "inter_chunk_ms", "e2e_ms")
"""Per-request latencies: the mean, and with `_p95` before the unit a percentile."""

_HIGHER = (
    "output_tokens_per_s",
    "steady_tokens_per_s",
    "total_tokens_per_s",
    "requests_per_s",
    "goodput_per_s",
    "acceptance_length",
    "acceptance_rate",
)
_LOWER = ("error_rate", *LATENCIES)


def percentile_name(latency: str, percentile: int) -> str:
    """`ttft_p95_ms` of `ttft_ms` and 95."""
    return f"{latency.removesuffix('_ms')}_p{percentile}_ms"


DIRECTIONS: dict[str, str] = {
    **dict.fromkeys(_HIGHER, "maximize"),
    **dict.fromkeys(_LOWER, "minimize"),
    **{percentile_name(name, p): "minimize" for name in LATENCIES for p in PERCENTILES},
}
"""Every metric name a study may use, and what one does with it."""


NOT_COMPARED = {
    "acceptance_length": "without speculation nothing is drafted",
    "acceptance_rate": "without speculation nothing is drafted",
    "error_rate": "a good server has none",
}
"""Metrics that are no objective, and why the baseline has nothing to compare with; a constraint
may name them."""


def metrics_to(direction: str) -> tuple[str, ...]:
    """The metrics that one would `maximize`, or `minimize`, as an objective."""
    own = (name for name, found in DIRECTIONS.items() if found == direction)
    return tuple(name for name in own if name not in NOT_COMPARED)


def unknown_metric(name: str, at: tuple[str | int, ...] = ()) -> Issue:
    """The issue of a name that is no metric."""
    near = nearest(name, DIRECTIONS)
    latencies = ", ".join(name.removesuffix("_ms") for name in LATENCIES)
    hint = (
        f"Did you mean {near}?"
        if near
        else (
            f"Known metrics: {', '.join((*_HIGHER, *_LOWER))}; with _p50, _p90, _p95 or _p99 "
            f"after {latencies}."
        )
    )
    return Issue(f"must name a known metric, got {name!r}", hint, at)
