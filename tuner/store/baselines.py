"""Owns the baseline's launches among the stored trials of a study: where they stand, how fast.

Everyone who speaks of noise or drift of the machine asks here, so that all say the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.measure.sentinels import Sentinels, sentinels
from tuner.store.record import TrialRecord


def launch_places(records: Sequence[TrialRecord]) -> dict[int, int]:
    """Launches of the study before each launched trial, by trial number."""
    launched = [record for record in records if record.is_launch]
    return {record.number: place for place, record in enumerate(launched)}


def sentinels_of(
    records: Sequence[TrialRecord], metric: str, load: str, *, newest: int | None = None
) -> Sentinels:
    """The launches of the baseline along a study; `newest`: only so many of the last."""
    places = launch_places(records)
    baselines = [record for record in records if record.state == "baseline"]
    if newest is not None:
        baselines = baselines[max(0, len(baselines) - newest) :]
    return sentinels(
        [places[record.number] for record in baselines],
        [record.series(metric, load) for record in baselines],
    )
