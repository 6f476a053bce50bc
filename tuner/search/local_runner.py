"""Owns one launch on this machine: launch, wait ready, read back, warm up, measure, stop.

Knows nothing of trials, studies or Optuna: it turns a `LaunchPlan` into a filled `ServerRun`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.args import digest_of
from tuner.errors import FailureKind, TrialFailure
from tuner.events import RequestsProgressed, StageChanged
from tuner.measure.client import LoadClient
from tuner.measure.records import Block, LoadPoint
from tuner.search.bench import Bench, LaunchPlan, ServerRun, StopEarly, blocks_at
from tuner.server.ports import free_port
from tuner.server.process import ServerProcess
from tuner.server.readiness import exit_failure, wait_ready

HARD_CAP = 4.0
"""A launch may take this many times the launch timeout while its log still progresses."""

LOG_HEAD_BYTES = 262_144
"""How much of the start-up log is read for effective values."""


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Runs launches on this machine, one at a time."""

    stop_grace_s: float = 30.0
    is_simulated: bool = False

    def run(self, bench: Bench, plan: LaunchPlan, run: ServerRun, stop_early: StopEarly) -> None:
        """Measure the planned server into `run`; the server is stopped on every way out."""
        with self._running_server(bench, plan, run) as server:
            _await_ready(bench, plan, server, run)
            with _decoded_death(bench, server), _client(bench, plan, server) as client:
                _read_effective(bench, plan, server, client, run)
                for load in plan.loads:
                    _warm_up(bench, plan, client, load, run)
                    if _measure_load(bench, plan, client, load, run, stop_early):
                        break

    @contextlib.contextmanager
    def _running_server(
        self, bench: Bench, plan: LaunchPlan, run: ServerRun
    ) -> Iterator[ServerProcess]:
        _announce(bench, plan, "launching")
        port = free_port()
        command = bench.engine.command(plan.args, port)
        run.log_path = plan.folder / "server.log"
        with run.timing("launch"):
            server = ServerProcess.launch(
                command, port=port, log_path=run.log_path, label=f"{bench.study}:{plan.label}"
            )
        try:
            yield server
        finally:
            _announce(bench, plan, "stopping")
            with run.timing("stop"):
                server.stop(self.stop_grace_s)


def _announce(bench: Bench, plan: LaunchPlan, stage: str) -> None:
    bench.observer(StageChanged(plan.number, stage))  # type: ignore[arg-type]


def _await_ready(bench: Bench, plan: LaunchPlan, server: ServerProcess, run: ServerRun) -> None:
    with run.timing("launch"):
        wait_ready(
            server,
            bench.engine.probe(plan.args),
            timeout_s=bench.launch_timeout_s,
            hard_cap_s=HARD_CAP * bench.launch_timeout_s,
            classify=bench.engine.classify,
        )


@contextlib.contextmanager
def _decoded_death(bench: Bench, server: ServerProcess) -> Iterator[None]:
    """A server that died while measured is reported in the words of its own log."""
    try:
        yield
    except TrialFailure as failure:
        decoded = exit_failure(server, bench.engine.classify)
        if failure.kind is not FailureKind.DIED or decoded is None:
            raise
        out_of_memory = decoded.kind is FailureKind.OUT_OF_MEMORY
        raise TrialFailure(
            decoded.kind if out_of_memory else FailureKind.DIED,
            decoded.reason,
            hint=decoded.hint,
            is_draft_fault=decoded.is_draft_fault,
        ) from failure


def _client(bench: Bench, plan: LaunchPlan, server: ServerProcess) -> LoadClient:
    def gone() -> str | None:
        return None if server.poll() is None else server.exit_reason()

    return LoadClient(server.base_url, bench.engine.wire(plan.args), bench.workload, alive=gone)


def _read_effective(
    bench: Bench, plan: LaunchPlan, server: ServerProcess, client: LoadClient, run: ServerRun
) -> None:
    with run.timing("launch"):
        path = bench.engine.effective_path()
        text = client.get_text(path) if path else log_head(server.log_path)
        run.effective = bench.engine.parse_effective(text or "")
        run.drifts = bench.engine.drift(plan.args, run.effective)
    run.warnings += [drift.message or f"{drift.name}: asked {drift.requested}, "
                     f"runs {drift.effective}" for drift in run.drifts]  # fmt: skip


def log_head(path: Path) -> str:
    """The start of a server log."""
    with path.open("rb") as handle:
        return handle.read(LOG_HEAD_BYTES).decode(errors="replace")


def _warm_up(
    bench: Bench, plan: LaunchPlan, client: LoadClient, load: LoadPoint, run: ServerRun
) -> None:
    _announce(bench, plan, "warming_up")
    with run.timing("warm_up"):
        client.warm_up(plan.blocks[0], load)


def _measure_load(
    bench: Bench,
    plan: LaunchPlan,
    client: LoadClient,
    load: LoadPoint,
    run: ServerRun,
    stop_early: StopEarly,
) -> bool:
    """Measure every block at one load point; True when the trial was stopped early."""
    _announce(bench, plan, "measuring")
    with run.timing("measure"):
        before = client.snapshot(bench.engine.snapshot_paths())
        stopped = False
        for index in range(len(plan.blocks)):
            _flush(bench, client)
            run.blocks.append(_measure_block(bench, plan, client, load, index))
            if load == bench.objective.load and stop_early(run, load):
                stopped = True
                break
        after = client.snapshot(bench.engine.snapshot_paths())
    records = [record for block in blocks_at(run, load) for record in block.records]
    if bench.engine.is_speculative(plan.args):  # a baseline without counts did not fail to draft
        acceptance = bench.engine.acceptance(before, after, records)
        if acceptance is not None:
            run.acceptance[load] = acceptance
    run.cycle = run.cycle or bench.engine.cycle(before, after)
    return stopped


def _flush(bench: Bench, client: LoadClient) -> None:
    path = bench.engine.flush_path()
    if bench.workload.cache == "flush" and path is not None:
        status = client.post(path)
        if status != 200:
            raise TrialFailure(
                FailureKind.REQUEST_ERRORS,
                f"flushing the prompt cache must answer 200, got {status} from {path}",
            )


def _measure_block(
    bench: Bench, plan: LaunchPlan, client: LoadClient, load: LoadPoint, index: int
) -> Block:
    def progressed(done: int, total: int, errors: int) -> None:
        bench.observer(
            RequestsProgressed(plan.number, index, len(plan.blocks), done, total, errors)
        )

    return client.run_block(index, plan.blocks[index], load, on_progress=progressed)


def effective_digest(run: ServerRun) -> str:
    """Identity of what really ran; empty when the engine told nothing."""
    return digest_of(run.effective) if run.effective else ""
