"""Owns how llama-server's counters become an `Acceptance`.

Two sources: `timings.draft_n / draft_n_accepted` of each answer (present only when something was
drafted: absent is not zero), and the counters of `/metrics`, the only place that counts
verification steps and positions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.engines.prometheus import Metrics, delta, delta_by_label, parse_metrics
from tuner.measure.records import Acceptance, RequestRecord, Snapshot

METRICS_PATH = "/metrics"
PREFIX = "llamacpp:"
_STEPS = "spec_decode_num_drafts_total"
_DRAFTED = "spec_decode_num_draft_tokens_total"
_ACCEPTED = "spec_decode_num_accepted_tokens_total"
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(slots=True)
class _Counts:
    """Drafted, accepted and generated tokens, pooled over answers."""

    drafted: int = 0
    accepted: int = 0
    predicted: int = 0


@dataclass(frozen=True, slots=True)
class _Window:
    """What `/metrics` counted between two snapshots."""

    steps: int
    drafted: int
    accepted: int
    per_position: tuple[float, ...]


def acceptance(
    before: Snapshot,
    after: Snapshot,
    records: Sequence[RequestRecord],
    prefix: str = PREFIX,
) -> Acceptance | None:
    """Acceptance over a window; None when neither source says anything about drafting.

    Length is 1 + accepted / verification steps that carried a draft, as llama.cpp's own log has
    it. Steps come from `/metrics`; without it every decoding step counts as one.
    """
    by_category = _timed(records)
    pooled = _Counts(
        sum(c.drafted for c in by_category.values()),
        sum(c.accepted for c in by_category.values()),
        sum(c.predicted for c in by_category.values()),
    )
    window = _window(_page(before), _page(after), prefix)
    if window is None:
        return _from_timings(pooled, by_category) if pooled.drafted else None
    if window.steps == 0:
        return Acceptance(1.0, None, (), 0, 0, 0, METRICS_PATH)
    is_timed = pooled.drafted > 0
    drafted = pooled.drafted if is_timed else window.drafted
    accepted = pooled.accepted if is_timed else window.accepted
    return Acceptance(
        length=1 + window.accepted / window.steps,
        rate=accepted / drafted if drafted else None,
        per_position=tuple(count / window.steps for count in window.per_position),
        steps=window.steps,
        drafted=drafted,
        accepted=accepted,
        basis=f"timings and {METRICS_PATH}" if is_timed else METRICS_PATH,
        by_category=_lengths(by_category, window.drafted / window.steps),
    )


def _from_timings(pooled: _Counts, by_category: Mapping[str, _Counts]) -> Acceptance:
    steps = max(pooled.predicted - pooled.accepted, 1)
    return Acceptance(
        length=1 + pooled.accepted / steps,
        rate=pooled.accepted / pooled.drafted,
        per_position=(),
        steps=None,
        drafted=pooled.drafted,
        accepted=pooled.accepted,
        basis="timings, every decoding step counted",
        by_category=_lengths(by_category, pooled.drafted / steps),
    )


def _lengths(by_category: Mapping[str, _Counts], mean_draft: float) -> dict[str, float]:
    """Length per category: its acceptance rate times the mean draft of a step."""
    return {
        category: 1 + counts.accepted / counts.drafted * mean_draft
        for category, counts in sorted(by_category.items())
        if counts.drafted
    }


def _timed(records: Sequence[RequestRecord]) -> dict[str, _Counts]:
    by_category: dict[str, _Counts] = defaultdict(_Counts)
    for record in records:
        timings = record.extra.get("timings")
        if record.ok and isinstance(timings, Mapping):
            counts = by_category[record.category]
            counts.drafted += _count(timings.get("draft_n"))
            counts.accepted += _count(timings.get("draft_n_accepted"))
            counts.predicted += _count(timings.get("predicted_n"))
    return by_category


def _count(value: object) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and isinstance(value, int | float) and 0 <= value < 1e15 else 0


def _page(snapshot: Snapshot) -> Metrics | None:
    text = snapshot.texts.get(METRICS_PATH)
    return None if text is None else parse_metrics(text)


def _window(before: Metrics | None, after: Metrics | None, prefix: str) -> _Window | None:
    """The counters' growth; None when a page or a counter is missing, or the server restarted."""
    if before is None or after is None:
        return None
    steps = delta(before, after, prefix + _STEPS)
    drafted = delta(before, after, prefix + _DRAFTED)
    accepted = delta(before, after, prefix + _ACCEPTED)
    if steps is None or drafted is None or accepted is None:
        return None
    grown = delta_by_label(before, after, "position", prefix + _PER_POSITION) or {}
    positions = [grown[key] for key in sorted(grown, key=_position)]
    while positions and positions[-1] == 0:
        positions.pop()
    return _Window(int(steps), int(drafted), int(accepted), tuple(positions))


def _position(label: str) -> tuple[int, str]:
    return (int(label), "") if label.isdecimal() else (1 << 30, label)
