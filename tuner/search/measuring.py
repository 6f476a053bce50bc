"""Owns measuring a ready server at one load point after another into a `ServerRun`.

Knows the server only by its engine and a client; who launched it and who stops it is not its
business.
"""

from __future__ import annotations

from tuner.errors import FailureKind, TrialFailure
from tuner.events import RequestsProgressed, StageChanged
from tuner.measure.client import LoadClient
from tuner.measure.records import Block, LoadPoint, Snapshot
from tuner.search.bench import Bench, LaunchPlan, ServerRun, StopEarly


def measure_loads(
    bench: Bench, plan: LaunchPlan, client: LoadClient, run: ServerRun, stop_early: StopEarly
) -> None:
    """Warm up and measure every load point of a plan, the objective's first."""
    for load in plan.loads:
        _warm_up(bench, plan, client, load, run)
        if _measure_load(bench, plan, client, load, run, stop_early):
            break


def _warm_up(
    bench: Bench, plan: LaunchPlan, client: LoadClient, load: LoadPoint, run: ServerRun
) -> None:
    bench.observer(StageChanged(plan.number, "warming_up"))
    with run.timing("warm_up"):
        client.warm_up(bench.workload.warm_up_prompts, load)


def _measure_load(
    bench: Bench,
    plan: LaunchPlan,
    client: LoadClient,
    load: LoadPoint,
    run: ServerRun,
    stop_early: StopEarly,
) -> bool:
    """Measure every block at one load point; True when the trial was stopped early."""
    bench.observer(StageChanged(plan.number, "measuring"))
    paths = bench.engine.snapshot_paths()
    done = len(run.blocks)
    with run.timing("measure"):
        before = client.snapshot(paths)
        stopped = _measure_blocks(bench, plan, client, load, run, stop_early)
        after = client.snapshot(paths)
    records = [record for block in run.blocks[done:] for record in block.records]
    if bench.engine.is_speculative(plan.args):  # a baseline without counts did not fail to draft
        acceptance = bench.engine.acceptance(before, after, records)
        if acceptance is not None:
            run.acceptance[load] = acceptance
    run.cycle = run.cycle or bench.engine.cycle(before, after)
    return stopped


def _measure_blocks(
    bench: Bench,
    plan: LaunchPlan,
    client: LoadClient,
    load: LoadPoint,
    run: ServerRun,
    stop_early: StopEarly,
) -> bool:
    before = client.snapshot(bench.engine.snapshot_paths())
    for index in range(len(plan.blocks)):
        _flush(bench, client)
        run.blocks.append(_measure_block(bench, plan, client, load, index, run))
        after = client.snapshot(bench.engine.snapshot_paths())
        if bench.engine.is_speculative(plan.args):
            _count_block(bench, run, before, after)
        before = after
        if load == bench.objective.load and stop_early(run, load):
            return True
    return False


def _count_block(bench: Bench, run: ServerRun, before: Snapshot, after: Snapshot) -> None:
    """Keep the counters of the newest block by themselves: the model fits its clock to blocks."""
    block = run.blocks[-1]
    counted = bench.engine.acceptance(before, after, block.records)
    if counted is not None:
        run.block_acceptance[block.load, block.index] = counted


def _flush(bench: Bench, client: LoadClient) -> None:
    path = bench.engine.flush_path()
    if bench.workload.cache == "flush" and path is not None:
        status = client.post(path)
        if status != 200:
            raise TrialFailure(
                FailureKind.REQUEST_ERRORS,
                f"flushing the prompt cache must answer 200, got {status} from {path}",
                hint="Leave workload.cache out: auto makes prompts unique instead.",
            )


def _measure_block(
    bench: Bench,
    plan: LaunchPlan,
    client: LoadClient,
    load: LoadPoint,
    index: int,
    run: ServerRun,
) -> Block:
    def progressed(done: int, total: int, errors: int) -> None:
        bench.observer(
            RequestsProgressed(plan.number, index, len(plan.blocks), done, total, errors)
        )

    try:
        return client.run_block(index, plan.blocks[index], load, on_progress=progressed)
    except BaseException:
        run.partial = client.partial_block
        raise
