"""Invented trials and launches for the search's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.engines.base import EngineFacts
from tuner.events import ignore
from tuner.measure.prompts import Workload
from tuner.measure.records import Block, LoadPoint, Prompt, RequestRecord, Sampling
from tuner.search.bench import Bench, LaunchPlan, ServerRun, StopEarly
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


class ToyEngine:
    """An engine whose servers are only names: what the runner under test asks of it."""

    kind = "toy"
    confounders: tuple[str, ...] = ()

    def __init__(self, source: str = "model") -> None:
        self.source = source

    def draft_source(self, args: ServerArgs) -> str:
        return self.source if args.flags else "none"

    def is_synthetic(self, args: ServerArgs) -> bool:
        return "synthetic" in args.flags

    def is_lossy(self, args: ServerArgs) -> bool:
        return False

    def complexity(self, args: ServerArgs) -> float:
        return float(args.flags.get("steps", 0))  # type: ignore[arg-type]


class ScriptedRunner:
    """Plays launches from a script: per label, seconds per request of each block, or a failure."""

    is_simulated = False

    def __init__(self, script: dict[str, Any]) -> None:
        self.script = script
        self.played: list[str] = []

    def run(self, bench: Bench, plan: LaunchPlan, run: ServerRun, stop_early: StopEarly) -> None:
        self.played.append(plan.label)
        steps = self.script[plan.label]
        step = steps.pop(0) if isinstance(steps, list) else steps
        if isinstance(step, BaseException):
            raise step
        run.effective = dict(step.get("effective", {}))
        if "acceptance" in step:
            run.acceptance[bench.objective.load] = step["acceptance"]
        for index, prompts in enumerate(plan.blocks):
            seconds = step["seconds"][index % len(step["seconds"])]
            answer = step.get("text", "the same answer")
            run.blocks.append(block_of(index, prompts, bench.objective.load, seconds, answer))
            if stop_early(run, bench.objective.load):
                return


def block_of(
    index: int, prompts: tuple[Prompt, ...], load: LoadPoint, seconds: float, text: str
) -> Block:
    """Requests one after the other, each of 100 tokens in `seconds`."""
    records = []
    for place, prompt in enumerate(prompts):
        start = place * seconds
        records.append(
            RequestRecord(
                prompt_id=prompt.id, category="chat", scheduled_s=start, sent_s=start,
                first_s=start + 0.1 * seconds, last_s=start + seconds, end_s=start + seconds,
                chunk_s=(start + 0.1 * seconds, start + seconds), prompt_tokens=20,
                output_tokens=100, cached_tokens=0, finish_reason="stop", text=text * 20,
            )
        )  # fmt: skip
    return Block(index, load, 0.0, len(prompts) * seconds, tuple(records))


def prompts_of(prefix: str, blocks: int, size: int = 2) -> tuple[tuple[Prompt, ...], ...]:
    """Blocks of invented prompts."""
    return tuple(
        tuple(
            Prompt(f"{prefix}-{b}-{i}", ({"role": "user", "content": f"{prefix} {b} {i}"},))
            for i in range(size)
        )
        for b in range(blocks)
    )


@pytest.fixture
def bench(objective: Objective) -> Callable[..., Bench]:
    def make(script: dict[str, Any], source: str = "model") -> Bench:
        workload = Workload(
            blocks=prompts_of("search", 4),
            held_out_blocks=prompts_of("held", 3),
            warm_up_prompts=(),
            loads=(objective.load,),
            sampling=Sampling(),
            digest="w",
        )
        engine: Any = ToyEngine(source)
        return Bench(
            study="toy", engine=engine, facts=EngineFacts(), workload=workload,
            objective=objective, launch_timeout_s=1.0, observer=ignore,
            runner=ScriptedRunner(script), fingerprint="f",
        )  # fmt: skip

    return make
