"""Owns acceptance from vLLM's `/metrics`: which counters, and what is divided by what.

vLLM counts a draft only where something was drafted. An n-gram that finds no match drafts
nothing, so accepted/drafts says how well it does *while drafting* (4.59 in a published run whose
length over all tokens was 2.96). The acceptance length here is over all decode steps:

    length = 1 + accepted / steps, steps = decode steps of all requests, drafted or not

so that a server with length L needs 1/L of the steps of plain decoding. Steps are the count of
`vllm:inter_token_latency_seconds`, observed once per request and step after the first token;
servers that do not report it fall back to drafts, and `basis` says which was used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.engines.prometheus import Metrics, delta, delta_by_label, parse_metrics
from tuner.measure.records import Acceptance, RequestRecord, Snapshot

METRICS = "/metrics"
_STEM = "vllm:spec_decode_num_"
_DRAFTS = (f"{_STEM}drafts_total", f"{_STEM}drafts")
_DRAFTED = (f"{_STEM}draft_tokens_total", f"{_STEM}draft_tokens")
_ACCEPTED = (f"{_STEM}accepted_tokens_total", f"{_STEM}accepted_tokens")
_PER_POSITION = (f"{_STEM}accepted_tokens_per_pos_total", f"{_STEM}accepted_tokens_per_pos")
_STEPS = (
    "vllm:inter_token_latency_seconds_count",
    "vllm:time_per_output_token_seconds_count",  # the name until 0.11
)


def read_acceptance(
    before: Snapshot, after: Snapshot, records: Sequence[RequestRecord], *, is_synthetic: bool
) -> Acceptance | None:
    """Acceptance over the window; None when the server reports nothing about drafting."""
    first = parse_metrics(before.texts.get(METRICS, ""))
    last = parse_metrics(after.texts.get(METRICS, ""))
    accepted, drafts = delta(first, last, *_ACCEPTED), delta(first, last, *_DRAFTS)
    drafted = delta(first, last, *_DRAFTED)
    if accepted is None or drafted is None:
        return None
    steps, basis = _steps(delta(first, last, *_STEPS), drafts, drafted)
    if not steps:
        return None
    return Acceptance(
        length=1 + accepted / steps,
        rate=accepted / drafted if drafted else None,
        per_position=_per_position(first, last, steps),
        steps=round(steps),
        drafted=round(drafted),
        accepted=round(accepted),
        basis=basis + (f", {1 + accepted / drafts:.2f} while drafting" if drafts else ""),
        is_synthetic=is_synthetic,
        by_category=_by_category(records),
    )


def _steps(decoded: float | None, drafts: float | None, drafted: float) -> tuple[float, str]:
    """Steps to divide by, and their basis in words."""
    if decoded and (drafts is None or decoded >= drafts):
        share = f" ({drafts / decoded:.0%} drafted)" if drafts is not None else ""
        return decoded, f"{METRICS}, all {decoded:.0f} decode steps{share}"
    if drafts:
        return drafts, f"{METRICS}, the {drafts:.0f} steps that drafted"
    return (decoded or 0.0), f"{METRICS}, nothing was drafted" if not drafted else METRICS


def _per_position(first: Metrics, last: Metrics, steps: float) -> tuple[float, ...]:
    counts = delta_by_label(first, last, "position", *_PER_POSITION) or {}
    numbered = {int(label): count for label, count in counts.items() if label.isdecimal()}
    if sorted(numbered) != list(range(len(numbered))):
        return ()
    return tuple(numbered[position] / steps for position in sorted(numbered))


def _by_category(records: Sequence[RequestRecord]) -> dict[str, float]:
    """Acceptance length per prompt category, where `--per-request-spec-decode-metrics` says.

    Per request, vLLM counts steps that drafted; output tokens tell the other steps.
    """
    totals: dict[str, tuple[float, float]] = {}
    for record in records:
        accepted = _accepted_of(record.extra)
        if accepted is None or not record.output_tokens:
            continue
        steps = max(record.output_tokens - 1 - accepted, 1)
        before = totals.get(record.category, (0.0, 0.0))
        totals[record.category] = (before[0] + accepted, before[1] + steps)
    return {name: 1 + accepted / steps for name, (accepted, steps) in sorted(totals.items())}


def _accepted_of(extra: Mapping[str, object]) -> float | None:
    metrics = extra.get("metrics")
    drafting = metrics.get("speculative_decoding") if isinstance(metrics, Mapping) else None
    value = drafting.get("num_accepted_draft_tokens") if isinstance(drafting, Mapping) else None
    return float(value) if isinstance(value, int | float) else None
