"""One launch on this machine: a server that dies while it is measured."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.args import ServerArgs
from tuner.config.engine import FakeConfig
from tuner.config.workload import WorkloadConfig
from tuner.engines.base import EngineFacts, Failure
from tuner.engines.fake import FakeEngine
from tuner.errors import FailureKind, TrialFailure
from tuner.events import ignore
from tuner.host.gpus import GpuReading
from tuner.measure.prompts import build_workload
from tuner.search.bench import Bench, LaunchPlan, ServerRun, never
from tuner.search.local_runner import LocalRunner
from tuner.search.objective import Objective
from tuner.server.command import ReadyProbe

LAST = "SIGQUIT received."


class Talkative(FakeEngine):
    """A fake engine whose server says that it is about to end itself."""

    def probe(self, args: ServerArgs) -> ReadyProbe:
        return replace(super().probe(args), last_words=(LAST,))

    def classify(self, returncode: int | None, log_tail: str) -> Failure:
        if returncode is None:
            return Failure(FailureKind.NOT_READY, "it lives")
        return Failure(FailureKind.DIED, log_tail.strip().splitlines()[-2])


def bench_of(engine: FakeEngine) -> Bench:
    workload = build_workload(
        WorkloadConfig.model_validate({
            "prompts": {"builtin": "mixed"}, "blocks": 2, "block_size": 2, "held_out": 2,
            "output_tokens": {"exactly": 8}, "load": [{"concurrency": 1}], "warm_up": 1,
        }), 0,
    )  # fmt: skip
    load = workload.loads[0]
    objective = Objective("output_tokens_per_s", maximize=True, load=load)
    return Bench("dying", engine, EngineFacts(), workload, objective, 30.0, ignore, LocalRunner())


@pytest.mark.parametrize("request_number", [1, 4])
def test_a_crashed_server_is_reported_and_ended_at_its_last_words(
    request_number: int, tmp_path: Path
) -> None:
    """The first request is the readiness check's; the fourth one is measured."""
    behaviour = {
        "die_at_request": request_number, "dying_s": 600, "trap_sigterm": True,
        "exit_log": f"RuntimeError: wrong shape\n{LAST} signum=None",
    }  # fmt: skip
    engine = Talkative(FakeConfig(kind="fake", behaviour=behaviour))
    bench = bench_of(engine)
    plan = LaunchPlan(
        1, engine.fixed_args(), bench.workload.blocks, bench.workload.loads, tmp_path, "trial-1"
    )
    began, run = time.monotonic(), ServerRun()
    with pytest.raises(TrialFailure, match="wrong shape") as caught:
        bench.runner.run(bench, plan, run, never)
    assert caught.value.kind is FailureKind.DIED
    assert time.monotonic() - began < 25  # neither 600 s of dying nor 30 s of grace
    assert run.spent["stop"] < 10


class HotGpu:
    """One GPU that is held back by heat, with a process of the study's and one of nobody's."""

    def read(self) -> list[GpuReading]:
        return [
            GpuReading(0, 1200, 88, 350.0, 0, ("thermal slowdown (hardware)",), {10: 1, 77: 1})
        ]


def test_gpus_are_sampled_while_blocks_are_measured_and_kept_with_each(tmp_path: Path) -> None:
    engine = FakeEngine(FakeConfig(kind="fake", behaviour={"step_ms": 1}))
    bench, run = bench_of(engine), ServerRun()
    plan = LaunchPlan(
        0, ServerArgs({"model": "fake"}), bench.workload.blocks, bench.loads, tmp_path, "hot"
    )
    LocalRunner(gpus=HotGpu(), neighbours=lambda: {10}).run(bench, plan, run, never)
    assert "GPU 0 was held back by its thermal slowdown (hardware) in 100% of the samples" in (
        run.warnings
    )
    assert "GPU 0 was used by other processes: 77" in run.warnings
    for block in run.blocks:
        (gpu,) = block.gpus
        assert (gpu["index"], gpu["sm_clock_mhz_mean"], gpu["temperature_c_max"]) == (0, 1200, 88)
        assert gpu["throttled"] == {"thermal slowdown (hardware)": 1.0}
        assert (gpu["power_w_mean"], gpu["foreign_pids"]) == (350.0, (77,))
