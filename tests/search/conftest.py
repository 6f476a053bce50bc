"""Invented trials and launches for the search's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuner.measure.records import LoadPoint
from tuner.search.objective import Objective
from tuner.store.record import (
    AcceptanceRecord,
    ArgsRecord,
    ConfirmationLaunch,
    LoadPointRecord,
    TrialRecord,
)

METRIC = "output_tokens_per_s"


@pytest.fixture
def objective() -> Objective:
    return Objective(METRIC, maximize=True, load=LoadPoint(concurrency=1))


@pytest.fixture
def trial() -> Callable[..., TrialRecord]:
    def make(
        number: int,
        state: str = "complete",
        speeds: tuple[float, ...] = (100.0, 110.0),
        **more: Any,
    ) -> TrialRecord:
        value = sum(speeds) / len(speeds)
        point = LoadPointRecord(
            load="c1", metrics={METRIC: value}, per_block={METRIC: list(speeds)}, requests=8
        )
        fields: dict[str, Any] = {
            "digest": f"d{number}",
            "value": value,
            "vs_baseline": value / 105.0,
            "metrics": point.metrics,
            "load_points": [point],
            "requested_args": ArgsRecord(flags={"steps": number}),
        }
        return TrialRecord(number=number, state=state, **{**fields, **more})

    return make


@pytest.fixture
def accepted() -> Callable[..., AcceptanceRecord]:
    def make(accepted: int, drafted: int | None, steps: int | None = 100) -> AcceptanceRecord:
        length = 1.0 + accepted / steps if steps else 1.0
        return AcceptanceRecord(length=length, accepted=accepted, drafted=drafted, steps=steps)

    return make


@pytest.fixture
def launch() -> Callable[..., ConfirmationLaunch]:
    def make(round_: int, trial: int, speed: float, **more: Any) -> ConfirmationLaunch:
        fields: dict[str, Any] = {
            "campaign": "x",
            "order": round_ * 10 + trial,
            "digest": f"d{trial}",
            "per_block": [speed, speed * 1.1],
            "metrics": {METRIC: speed, "ttft_p95_ms": 100.0},
        }
        return ConfirmationLaunch(round=round_, trial=trial, value=speed, **{**fields, **more})

    return make
