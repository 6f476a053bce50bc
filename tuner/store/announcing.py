"""Owns how a stored trial is announced: the event whose line every screen shows."""

from __future__ import annotations

from tuner.events import TrialFinished
from tuner.store.record import TrialRecord


def as_finished(record: TrialRecord) -> TrialFinished:
    """What the permanent line shows of a stored trial."""
    return TrialFinished(
        number=record.number,
        state=record.state,
        params=record.params,
        value=record.value,
        half_width=record.half_width,
        vs_baseline=record.vs_baseline,
        acceptance_length=record.acceptance_length,
        ttft_p95_ms=record.metrics.get("ttft_p95_ms"),
        seconds=record.seconds.total,
        reason=record.reason or _pruned_text(record),
        failure=record.failure,
        predicted=record.predicted,
        warnings=tuple(record.warnings),
        broken=tuple(text for text, violation in record.constraints.items() if violation > 0),
    )


def _pruned_text(record: TrialRecord) -> str:
    return f"after block {record.prune.after_block}/{record.prune.blocks}" if record.prune else ""
