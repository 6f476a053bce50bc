"""Studies whose truth is known: counts and seconds made from a stated clock and curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tuner.store.record import (
    AcceptanceRecord,
    ArgsRecord,
    FinalistRecord,
    LoadPointRecord,
    RecommendationRecord,
    TrialRecord,
)
from tuner.store.stored import StoredStudy

REQUESTS, ANSWER = 48, 257


@dataclass(frozen=True)
class World:
    """A host and a draft: seconds per step are base + passes x draft + verified x token."""

    base: float = 0.010
    draft: float = 0.0006
    token: float = 0.0004
    rates: Sequence[float] = (0.7, 0.6, 0.5, 0.45, 0.4, 0.35, 0.3)
    prefill: float = 0.12
    per_load: Mapping[int, float] = field(default_factory=dict)

    def length(self, depth: int) -> float:
        return 1 + sum(math.prod(self.rates[: i + 1]) for i in range(depth))

    def step(self, depth: int) -> float:
        return self.base + depth * (self.draft + self.token)

    def speed(self, depth: int) -> float:
        tokens = ANSWER - 1
        return ANSWER / (self.prefill + tokens / self.length(depth) * self.step(depth))

    def point(self, depth: int, concurrency: int = 1) -> LoadPointRecord:
        slow = 1 + (concurrency - 1) * (0.02 + 0.02 * depth)
        speed = self.speed(depth) * concurrency / slow
        decode = (ANSWER - 1) / self.length(depth) * self.step(depth)
        return LoadPointRecord(
            load=f"c{concurrency}",
            metrics={
                "output_tokens_per_s": speed,
                "requests_per_s": speed / ANSWER,
                "ttft_ms": self.prefill * 1000,
                "e2e_ms": (self.prefill + decode) * 1000,
                "tpot_ms": decode / (ANSWER - 1) * 1000,
            },
            per_block={"output_tokens_per_s": [speed * f for f in (0.97, 1.0, 1.02, 1.01)]},
            requests=REQUESTS,
            acceptance=self.acceptance(depth) if depth else None,
        )

    def acceptance(self, depth: int) -> AcceptanceRecord:
        steps = round(REQUESTS * (ANSWER - 1) / self.length(depth))
        return AcceptanceRecord(
            length=self.length(depth),
            rate=(self.length(depth) - 1) / depth,
            per_position=[math.prod(self.rates[: i + 1]) for i in range(depth)],
            steps=steps,
            drafted=steps * depth,
            accepted=REQUESTS * (ANSWER - 1) - steps,
            basis="made up",
            by_category={"code": self.length(depth) + 0.4, "chat": self.length(depth) - 0.3},
        )

    def trial(
        self, number: int, depth: int, *, loads: Sequence[int] = (1,), **changes: Any
    ) -> TrialRecord:
        points = [self.point(depth, concurrency) for concurrency in loads]
        first = points[0]
        value = first.metrics["output_tokens_per_s"]
        flags: dict[str, Any] = {"model-path": "/models/big"}
        if depth:
            flags |= {
                "speculative-algorithm": "EAGLE3",
                "speculative-num-steps": depth,
                "speculative-eagle-topk": 1,
            }
        made = TrialRecord(
            number=number,
            state="complete" if depth else "baseline",
            params={"steps": depth} if depth else {},
            requested_args=ArgsRecord(flags=flags),
            digest=f"{number:016x}",
            value=value,
            half_width=0.01 * value,
            vs_baseline=value / self.speed(0),
            acceptance_length=self.length(depth) if depth else None,
            acceptance_per_position=first.acceptance.per_position if first.acceptance else [],
            acceptance=first.acceptance,
            metrics=first.metrics,
            load_points=points,
        )
        return made.model_copy(update=changes)

    def study(self, depths: Sequence[int], *, loads: Sequence[int] = (1,)) -> StoredStudy:
        trials = [self.trial(n, d, loads=loads) for n, d in enumerate([0, *depths])]
        return stored(trials)


def stored(
    trials: list[TrialRecord], recommendation: RecommendationRecord | None = None
) -> StoredStudy:
    document = {
        "fields": {"objective": "maximize output_tokens_per_s", "objective.at": "c1"},
        "fingerprint": {"engine": "sglang 0.5.23", "cpu": "<b>made up</b>"},
        "config": "name: demo\n",
    }
    return StoredStudy("demo", trials, recommendation, [], document)


@pytest.fixture
def make_world() -> Callable[..., World]:
    return World


@pytest.fixture
def make_study() -> Callable[..., StoredStudy]:
    return stored


@pytest.fixture
def story() -> StoredStudy:
    """Kimi-K2.5 on 8 PCIe GPUs: flags +5.9 %, acceptance 2.1, verification over 95 % of a step."""
    rates = (0.6, 0.55, 0.515)  # 1 + 0.6 + 0.33 + 0.17 = 2.1
    world = World(base=0.011, draft=0.0002, token=0.00362, rates=rates, prefill=0.1)
    step = world.step(3)
    flags = {
        "model-path": "/models/Kimi-K2.5-INT4",
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": "/models/kimi-k2.5-eagle3",
        "speculative-num-steps": 3,
        "speculative-eagle-topk": 1,
        "tp-size": 8,
    }
    best = world.trial(
        1,
        3,
        vs_baseline=94 / 88.8,
        requested_args=ArgsRecord(flags=flags),
        cycle={"draft": 0.02 * step, "verify": 0.96 * step},
    )
    finalist = FinalistRecord(
        trial=1, digest=best.digest, ratio=1.059, low=1.04, high=1.08, launches=4
    )
    found = RecommendationRecord(
        verdict="use", trial=1, ratio=1.059, low=1.04, high=1.08, finalists=[finalist]
    )
    return stored([world.trial(0, 0), best], found)
