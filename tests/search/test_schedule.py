"""The schedule with played launches: what is confirmed, what is measured, what is recommended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.config.engine import FakeConfig, SglangConfig
from tuner.engines.base import EngineFacts
from tuner.engines.catalog import get_engine
from tuner.errors import EngineError, FailureKind, TrialFailure, UsageError
from tuner.events import ignore
from tuner.measure.prompts import Workload
from tuner.measure.records import Block, LoadPoint, Prompt, RequestRecord, Sampling
from tuner.measure.statistics import Interval
from tuner.search.bench import Bench, LaunchPlan, ServerRun, StopEarly
from tuner.search.depth_choice import Choice
from tuner.search.history import History
from tuner.search.objective import Objective
from tuner.search.schedule import Ladder, build_ladder, measure_schedule, table_of
from tuner.store.record import (
    ArgsRecord,
    ConfirmationLaunch,
    LoadPointRecord,
    RecommendationRecord,
    TrialRecord,
)
from tuner.store.results import ResultsFolder

C1, C8 = LoadPoint(concurrency=1), LoadPoint(concurrency=8)
METRIC = "output_tokens_per_s"
Speeds = Mapping[int, Mapping[str, float]]
CROSSING: Speeds = {0: {"c1": 100, "c8": 100}, 2: {"c1": 130, "c8": 95}, 5: {"c1": 160, "c8": 60}}


class Played:
    """Answers at a speed by the depth that the server drafts at each load, with launch noise."""

    is_simulated = False

    def __init__(self, speeds: Speeds, broken: str = "") -> None:
        self.speeds, self.broken = speeds, broken
        self.played: list[str] = []

    def run(self, bench: Bench, plan: LaunchPlan, run: ServerRun, stop_early: StopEarly) -> None:
        self.played.append(plan.label)
        if plan.label == self.broken:
            raise TrialFailure(FailureKind.OUT_OF_MEMORY, "CUDA out of memory")
        noise = 1 + 0.002 * ((7 * len(self.played)) % 5 - 2)
        for load in plan.loads:
            speed = noise * self.speeds[depth_at(plan.args, load)][load.label]
            run.blocks += [block(i, p, load, speed) for i, p in enumerate(plan.blocks)]


def depth_at(args: ServerArgs, load: LoadPoint) -> int:
    table = str(args.flags.get("spec-schedule", ""))
    pairs = [tuple(map(int, part.split(":"))) for part in table.split(",") if part]
    depths = [depth for first, depth in pairs if first <= (load.concurrency or 1)]
    plain = args.flags.get("spec-steps", 0)
    return depths[-1] if depths else plain if isinstance(plain, int) else 0


def block(index: int, prompts: Sequence[Prompt], load: LoadPoint, speed: float) -> Block:
    end = 100.0 * len(prompts) / (speed * (1 + 0.1 * index))
    records = tuple(
        RequestRecord(
            p.id, "", 0.0, 0.0, 0.1, end, end, (0.1, end), 9, 100, 0, "stop", text="x" * 99
        )
        for p in prompts
    )
    return Block(index, load, 0.0, end, records)


class Memory:
    """What the opened study does for a campaign."""

    name = "loads"

    def __init__(self, folder: Path, recommendation: RecommendationRecord | None) -> None:
        self.results = ResultsFolder(folder)
        self.kept: list[ConfirmationLaunch] = []
        self.blocks: dict[int, list[Block]] = {}
        self.store = SimpleNamespace(recommendation=lambda name: recommendation)

    def launches(self) -> list[ConfirmationLaunch]:
        return list(self.kept)

    def keep_launch(self, launch: ConfirmationLaunch, blocks: Sequence[Block]) -> None:
        self.kept.append(launch)
        self.blocks[launch.order] = list(blocks)

    def launch_blocks(self, order: int) -> list[Block]:
        return self.blocks[order]

    def launch_folder(self, order: int) -> Path:
        return self.results.base / str(order)


ENGINE = get_engine(FakeConfig(kind="fake"))


def args_at(depth: int) -> ServerArgs:
    return ServerArgs({"model": "fake", "spec-steps": depth} if depth else {"model": "fake"})


def trial(depth: int, speeds: Mapping[str, float]) -> TrialRecord:
    points = [
        LoadPointRecord(load=load, per_block={METRIC: [value, value * 1.1]}, requests=4)
        for load, value in speeds.items()
    ]
    return TrialRecord(
        number=depth, state="complete" if depth else "baseline", load_points=points,
        requested_args=ArgsRecord(**args_at(depth).to_json()), vs_baseline=speeds["c1"] / 100,
        value=speeds["c1"],
    )  # fmt: skip


Make = Callable[..., Any]


@pytest.fixture
def session(tmp_path: Path) -> Make:
    def make(
        speeds: Speeds, *, broken: str = "", loads: tuple[LoadPoint, ...] = (C1, C8),
        is_confirmed: bool = True,
    ) -> Any:  # fmt: skip
        objective = Objective(METRIC, maximize=True, load=C1)
        prompts = [Prompt(f"p{i}", ({"role": "user", "content": str(i)},)) for i in range(4)]
        held = (tuple(prompts[:2]), tuple(prompts[2:]))
        workload = Workload((), held, (), loads, Sampling(), digest="w")
        bench = Bench("loads", ENGINE, EngineFacts(), workload, objective, 1.0, ignore,
                      Played(speeds, broken))  # fmt: skip
        history = History(objective)
        for depth, values in speeds.items():
            history.add(trial(depth, values))
        found = RecommendationRecord(verdict="use", trial=5) if is_confirmed else None
        confirm = SimpleNamespace(rounds=3)
        fidelity = SimpleNamespace(compare="greedy_text", tolerance="calibrated")
        config = SimpleNamespace(confirm=confirm, fidelity=fidelity)
        return SimpleNamespace(
            bench=bench, history=history, opened=Memory(tmp_path, found),
            candidates=SimpleNamespace(baseline=args_at(0)),
            loaded=SimpleNamespace(config=config),
        )  # fmt: skip

    return make


def test_a_table_that_wins_is_used(session: Make) -> None:
    made = session(CROSSING)
    record = measure_schedule(build_ladder(made))
    assert {step.load: step.depth for step in record.steps} == {"c1": 5, "c8": 0}
    assert record.server_args.flags["spec-schedule"] == "1:5,3:0"
    assert (record.verdict, record.fidelity, record.launches) == ("use", "match", 3)
    assert record.single == 2  # best at no load, but the best for all of them
    assert record.ratio == pytest.approx((160 / 130 * 100 / 95) ** 0.5, rel=0.02)
    assert record.low is not None
    assert record.low > 1
    assert len(made.bench.runner.played) == 3 * 3 + 3 * 2
    assert made.bench.runner.played[9:12] == ["confirm-0-2", "confirm-0--1", "confirm-1--1"]


def test_it_goes_on_where_it_stopped(session: Make) -> None:
    made = session(CROSSING)
    first = measure_schedule(build_ladder(made))
    launched = len(made.bench.runner.played)
    assert measure_schedule(build_ladder(made)) == first
    assert len(made.bench.runner.played) == launched


def test_one_depth_that_is_best_everywhere_needs_no_table(session: Make) -> None:
    record = measure_schedule(
        build_ladder(session({0: {"c1": 100, "c8": 100}, 5: {"c1": 160, "c8": 140}}))
    )
    assert (record.verdict, record.single) == ("keep_single", 5)
    assert record.reasons == ["One depth is best at every load."]
    assert record.server_args.flags == {}


def test_where_drafting_never_pays_nothing_is_launched(session: Make) -> None:
    made = session({0: {"c1": 100, "c8": 100}, 5: {"c1": 90, "c8": 60}})
    record = measure_schedule(build_ladder(made))
    assert record.reasons == ["Speculation does not pay at any load."]
    assert made.bench.runner.played == []


def test_a_server_that_fails_at_a_load_ends_it(session: Make) -> None:
    with pytest.raises(EngineError, match="trial 5 must run at every load, got out_of_memory"):
        measure_schedule(build_ladder(session(CROSSING, broken="confirm-1-5")))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_confirmed": False}, "must be confirmed first"),
        ({"loads": (C1,)}, "at least two concurrencies for a schedule, got 1"),
        ({"speeds": {0: CROSSING[0]}}, "must have measured servers that a table of depths"),
    ],
)
def test_what_has_no_schedule_says_why(
    session: Make, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        build_ladder(session(**{"speeds": CROSSING, **changes}))


def test_an_sglang_table_is_written_where_the_measured_server_reads_it(tmp_path: Path) -> None:
    engine = get_engine(
        SglangConfig(kind="sglang", model="/m", draft_model="/d",
                     args={"speculative-algorithm": "EAGLE3", "speculative-num-steps": 3})
    )  # fmt: skip
    record = TrialRecord(
        number=4, state="complete", requested_args=ArgsRecord(**engine.fixed_args().to_json())
    )
    session: Any = SimpleNamespace(
        bench=SimpleNamespace(engine=engine, facts=EngineFacts()),
        opened=Memory(tmp_path, None),
    )
    ladder = Ladder(session, (C1, C8), {3: record}, RecommendationRecord(verdict="use"))
    gain = Interval(1.2, 1.1, 1.3, 3)
    choices = {C1: Choice(3, gain), C8: Choice(1, gain)}
    table = table_of(ladder, choices, str(tmp_path / "schedule"))
    written = tmp_path / "schedule" / "adaptive.json"
    assert table.args.flags["speculative-adaptive-config"] == str(written)
    assert written.read_text() == table.files["adaptive.json"]
