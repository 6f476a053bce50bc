"""A what-if on the real bundled server: who is accepted is decided by lot and counted exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.cli.simulating import NAMES, run_what_if
from tuner.config.engine import LlamacppConfig
from tuner.engines.base import EngineFacts
from tuner.engines.llamacpp.engine import LlamacppEngine
from tuner.events import ignore
from tuner.insight.whatif import compare, count_block
from tuner.measure.prompts import Workload
from tuner.measure.records import LoadPoint, Prompt, Sampling
from tuner.search.bench import Bench
from tuner.search.local_runner import LocalRunner
from tuner.search.objective import Objective
from tuner.search.remeasure import Contender, remeasure

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(240)]

DEPTH, TOKENS, PROMPTS = 2, 16, 2
LOAD = LoadPoint(concurrency=1)
BLOCKS = tuple(
    (Prompt(f"p{n}", ({"role": "user", "content": f"Count to {n}."},), "chat"),)
    for n in range(PROMPTS)
)
DECODED = PROMPTS * (TOKENS - 1)
"""Every answer's first token comes from its prefill."""


@pytest.fixture
def whatif_bench(model: Path) -> Bench:
    """The model drafts for itself: no second file, and acceptance is the server's lot."""
    env: dict[str, str | None] = {"OMP_WAIT_POLICY": "passive"}
    config = LlamacppConfig(
        kind="llamacpp", executable="bundled", model=str(model), draft_model=str(model), env=env,
        args={"ctx-size": 512, "parallel": 1},
    )  # fmt: skip
    sampling = Sampling(max_tokens=TOKENS, exact_tokens=True)
    return Bench(
        study="whatif",
        engine=LlamacppEngine(config),
        facts=EngineFacts(),
        workload=Workload(BLOCKS, BLOCKS, (), (LOAD,), sampling, warm_up=0),
        objective=Objective("output_tokens_per_s", True, LOAD),
        launch_timeout_s=60.0,
        observer=ignore,
        runner=LocalRunner(),
    )


def three(bench: Bench, now: float, lever: float) -> list[Contender]:
    engine: Any = bench.engine
    flags = {"spec-type": "draft-simple", "spec-draft-n-max": DEPTH}
    base = engine.fixed_args().replace(
        flags | {"spec-draft-model": engine.fixed_args().flags["model"]}
    )
    servers: list[ServerArgs] = [
        engine.without_speculation(base),
        *(base.replace({"spec-synth-len": length}) for length in (now, lever)),
    ]
    return [Contender(n, name, s) for n, (name, s) in enumerate(zip(NAMES, servers, strict=True))]


def test_counters_are_exact_and_the_clock_is_near(whatif_bench: Bench, tmp_path: Path) -> None:
    """Nothing accepted against everything: the steps of both are known beforehand."""
    found = remeasure(whatif_bench, three(whatif_bench, 1.0, DEPTH + 1.0), 1, tmp_path)
    counted = {
        name: [
            [
                count_block(b, each.counters.get(b.index), drafts=each.number > 0)
                for b in each.blocks
            ]
            for each in found
            if each.number == number
        ]
        for number, name in enumerate(NAMES)
    }
    for name, steps in (("baseline", 30), ("measured", 30), ("lever", 10)):
        for launch in counted[name]:
            assert sum(block.tokens for block in launch) == PROMPTS * TOKENS
            assert sum(block.steps for block in launch) == steps, name
    result = compare(counted, DEPTH + 1.0)
    assert (result.measured, result.drawn) == (1.0, DEPTH + 1.0)
    assert 1 < result.predicted < DEPTH + 1
    assert 0.2 < result.ran.ratio / result.predicted < 5  # the clock of a busy machine


@pytest.mark.e2e  # a minute on a busy core: run on request
def test_a_lot_between_both_ends_is_counted_too(whatif_bench: Bench) -> None:
    found = run_what_if(whatif_bench, three(whatif_bench, 1.4, 2.2), 2.2, rounds=2)
    assert 1.0 < found.measured < found.drawn < DEPTH + 1
    assert found.ran.replicates == 2
    assert found.predicted > 1
    assert found.seconds > 0
