"""Owns how SGLang's counts become acceptance and seconds per step.

Counts come with every answer: `sglext.spec_tokens_details` in its own chunk of the streamed chat
route (tried on 0.5.23: the chunk before the usage chunk), `meta_info` on the native route; older
names are in an alias table. `spec_accept_length` of the server is not used: it counts the
prefill token and is cut at max_tokens. The gauges of /metrics are not used: they are written
every `--decode-log-interval` steps and hold 0 before. Counters of /metrics check the sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.engines import prometheus
from tuner.measure.records import Acceptance, RequestRecord, Snapshot

METRICS_PATH = "/metrics"
_VERIFY = ("spec_verify_ct", "spec_verify_count")
_CORRECT = ("spec_num_correct_drafts", "spec_accept_token_num", "spec_accepted_tokens")
_PROPOSED = ("spec_num_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_VERIFY_CALLS = ("sglang:spec_verify_calls_total", "sglang:spec_verify_calls")
_GENERATED = ("sglang:generation_tokens_total", "sglang:generation_tokens")
_REQUESTS = ("sglang:num_requests_total", "sglang:num_requests")
_FORWARD = ("sglang:forward_execution_seconds_total", "sglang:forward_execution_seconds")
_COUNTING_ERA = "sglang:spec_num_draft_tokens"
"""A gauge of versions that also count verify calls: there, no counter means no verification."""


@dataclass(slots=True)
class _Counts:
    """Sums over answers; `seen` is how many answers reported anything."""

    seen: int = 0
    verify: int = 0
    correct: int = 0
    proposed: int | None = None
    histogram: tuple[int, ...] = ()

    def add(self, details: Mapping[str, Any]) -> None:
        """Take one answer's counts in."""
        verify = _count(details, _VERIFY)
        if verify is None:
            return
        histogram = _histogram(details)
        correct = _count(details, _CORRECT)
        if correct is None:
            correct = sum(depth * steps for depth, steps in enumerate(histogram))
        self.seen += 1
        self.verify += verify
        self.correct += correct
        proposed = _count(details, _PROPOSED)
        if proposed is not None:
            self.proposed = (self.proposed or 0) + proposed
        self.histogram = _added(self.histogram, histogram)

    @property
    def length(self) -> float:
        """1 + accepted drafts per verification; 1 when nothing was verified."""
        return 1 + self.correct / self.verify if self.verify else 1.0


def acceptance_of(
    before: Snapshot, after: Snapshot, records: Sequence[RequestRecord], is_synthetic: bool
) -> Acceptance | None:
    """Acceptance over a window, from the answers' own counts or else from the counters.

    `steps` 0 means that the server never drafted, `accepted` 0 with steps that it drafted in
    vain; None means that it reports nothing about drafting.
    """
    counts, by_category = _gather(records)
    metrics = _metrics(before), _metrics(after)
    if not counts.seen:
        return _from_counters(*metrics, is_synthetic)
    drafted = counts.proposed or None
    return Acceptance(
        length=counts.length,
        rate=counts.correct / drafted if drafted else None,
        per_position=_per_position(counts.histogram),
        steps=counts.verify,
        drafted=drafted,
        accepted=counts.correct,
        basis=_basis(counts, *metrics),
        is_synthetic=is_synthetic,
        by_category={name: each.length for name, each in by_category.items() if each.verify},
    )


def cycle_of(before: Snapshot, after: Snapshot, prefix: str = "sglang:") -> dict[str, float]:
    """Seconds per verification step by part: `draft`, `verify`, `draft_extend`, `other`.

    From the device timer (SGLANG_ENABLE_METRICS_DEVICE_TIMER=1); {} without it. Prefill
    (`extend`) is not part of a step. Drafting without a CUDA graph is not timed by SGLang
    (0.5.23), so a missing `draft` is left out rather than called zero.
    """
    early, late = _metrics(before), _metrics(after)
    calls, forward = (
        [name.replace("sglang:", prefix) for name in names] for names in (_VERIFY_CALLS, _FORWARD)
    )
    steps = prometheus.delta(early, late, *calls)
    seconds = prometheus.delta_by_label(early, late, "category", *forward)
    if not steps or not seconds:
        return {}
    parts: dict[str, float] = {}
    for category, spent in seconds.items():
        part = _part(category)
        if part and spent > 0:
            parts[part] = parts.get(part, 0.0) + spent / steps
    return parts


def _part(category: str) -> str:
    name = category.lower()
    if name in {"extend", "prefill", "idle", "mixed", "split_prefill"}:
        return ""
    if "draft_extend" in name:
        return "draft_extend"
    if "draft" in name:
        return "draft"
    return "verify" if "verify" in name else "other"


def _gather(records: Sequence[RequestRecord]) -> tuple[_Counts, dict[str, _Counts]]:
    counts, by_category = _Counts(), dict[str, _Counts]()
    for record in records:
        for details in _details(record.extra):
            counts.add(details)
            by_category.setdefault(record.category, _Counts()).add(details)
    return counts, by_category


def _details(extra: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = extra.get("meta_info")
    extension = extra.get("sglext")
    if isinstance(extension, Mapping):
        found = extension.get("spec_tokens_details") or found
    several = found if isinstance(found, list) else [found]
    return [each for each in several if isinstance(each, Mapping)]


def _count(details: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = details.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
            return int(value)
    return None


def _histogram(details: Mapping[str, Any]) -> tuple[int, ...]:
    for name in _HISTOGRAM:
        values = details.get(name)
        if isinstance(values, list) and all(isinstance(v, int) and v >= 0 for v in values):
            return tuple(values)
    return ()


def _added(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    size = max(len(one), len(other))
    padded = (one + (0,) * (size - len(one)), other + (0,) * (size - len(other)))
    return tuple(a + b for a, b in zip(*padded, strict=True))


def _per_position(histogram: tuple[int, ...]) -> tuple[float, ...]:
    """Share of steps that accepted at least 1, 2, … drafts; one 0 when none ever did."""
    total = sum(histogram)
    if not total:
        return ()
    deeper = (sum(histogram[depth:]) / total for depth in range(1, max(2, len(histogram))))
    return tuple(deeper)


def _metrics(snapshot: Snapshot) -> prometheus.Metrics:
    return prometheus.parse_metrics(snapshot.texts.get(METRICS_PATH, ""))


def _basis(counts: _Counts, early: prometheus.Metrics, late: prometheus.Metrics) -> str:
    calls = prometheus.delta(early, late, *_VERIFY_CALLS)
    text = "verify counts of the answers"
    if calls is None or abs(calls - counts.verify) <= max(2, 0.05 * counts.verify):
        return text
    return f"{text} ({counts.verify}; /metrics counted {calls:.0f})"


def _from_counters(
    early: prometheus.Metrics, late: prometheus.Metrics, is_synthetic: bool
) -> Acceptance | None:
    """Length from the counters: every request's first token comes from its prefill."""
    tokens = prometheus.delta(early, late, *_GENERATED)
    calls = prometheus.delta(early, late, *_VERIFY_CALLS)
    if calls is None and late.total(_COUNTING_ERA) is not None:
        calls = 0.0
    if calls is None:
        return None
    if calls == 0:
        return _never_drafted(is_synthetic) if tokens else None
    requests = prometheus.delta(early, late, *_REQUESTS)
    if tokens is None or requests is None:
        return None
    accepted = max(0, round(tokens - requests - calls))
    return Acceptance(1 + accepted / calls, None, (), round(calls), None, accepted, METRICS_PATH,
                      is_synthetic)  # fmt: skip


def _never_drafted(is_synthetic: bool) -> Acceptance:
    return Acceptance(1.0, None, (), 0, None, 0, METRICS_PATH, is_synthetic)
