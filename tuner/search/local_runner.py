"""Owns one launch on this machine: launch, wait ready, read back, measure, stop, verify.

Knows nothing of trials, studies or Optuna: it turns a `LaunchPlan` into a filled `ServerRun`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.args import digest_of
from tuner.errors import FailureKind, TrialFailure
from tuner.events import StageChanged
from tuner.host.conditions import watch_conditions
from tuner.host.gpu_sampler import GpuSampler, sampler
from tuner.host.gpus import GpuSource, await_memory_released, open_nvml
from tuner.measure.client import LoadClient
from tuner.measure.tokens import local_counter, tokenizer_folders
from tuner.search.bench import Bench, LaunchPlan, ServerRun, StopEarly
from tuner.search.measuring import measure_loads
from tuner.server.environments import environment_drift
from tuner.server.headroom import require_headroom
from tuner.server.ports import free_port
from tuner.server.process import ServerProcess
from tuner.server.readiness import exit_failure, said_last_words, wait_ready
from tuner.server.watchdog import Watchdog

HARD_CAP = 4.0
"""A launch may take this many times the launch timeout while its log still progresses."""

CRASHED_GRACE_S = 1.0
"""What crashed has nothing to drain; it may be writing diagnostics for minutes."""

LOG_HEAD_BYTES = 262_144
"""How much of the start-up log is read for effective values."""


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Runs launches on this machine, one at a time.

    Args:
        stop_grace_s: how long a server may take to end by itself.
        gpus: the GPUs its servers use; None: all of this machine.
        neighbours: processes of other launches of this study, which are not foreign load.
    """

    stop_grace_s: float = 30.0
    gpus: GpuSource | None = None
    neighbours: Callable[[], Collection[int]] = frozenset
    is_simulated: bool = False

    def run(self, bench: Bench, plan: LaunchPlan, run: ServerRun, stop_early: StopEarly) -> None:
        """Measure the planned server into `run`; the server is stopped on every way out.

        Raises:
            HostError: the machine lacks what any server needs.
            TrialFailure: of the kind that says whose fault it was.
        """
        require_headroom(plan.folder)
        with memory_given_back(self.gpus), self._running_server(bench, plan, run) as server:
            _await_ready(bench, plan, server, run)
            with (
                _decoded_death(bench, plan, server),
                _client(bench, plan, server) as client,
                watch_conditions(lambda: self._own_pids(server), self._sampler) as watch,
            ):
                _read_back(bench, plan, server, client, run)
                measure_loads(bench, plan, client, run, stop_early)
            run.warnings += watch.warnings()
            run.blocks[:] = [
                replace(block, gpus=watch.gpus_between(block.start_s, block.end_s))
                for block in run.blocks
            ]

    def _sampler(self, own_pids: Callable[[], Collection[int]]) -> GpuSampler | None:
        return sampler(own_pids, self.gpus)

    def _own_pids(self, server: ServerProcess) -> set[int]:
        return {stat.id.pid for stat in server.members()} | set(self.neighbours())

    @contextlib.contextmanager
    def _running_server(
        self, bench: Bench, plan: LaunchPlan, run: ServerRun
    ) -> Iterator[ServerProcess]:
        bench.observer(StageChanged(plan.number, "launching"))
        port = free_port()
        command = plan.command(bench.engine, port)
        run.log_path = plan.folder / "server.log"
        with run.timing("launch"):
            server = ServerProcess.launch(
                command, port=port, log_path=run.log_path, label=f"{bench.study}:{plan.label}"
            )
        grace_s = self.stop_grace_s
        try:
            yield server
        except TrialFailure as failure:
            if failure.kind in (FailureKind.DIED, FailureKind.OUT_OF_MEMORY):
                grace_s = min(grace_s, CRASHED_GRACE_S)
            raise
        finally:
            bench.observer(StageChanged(plan.number, "stopping"))
            with run.timing("stop"):
                server.stop(grace_s)


@contextlib.contextmanager
def memory_given_back(source: GpuSource | None = None) -> Iterator[None]:
    """A launch is over only when every GPU holds what it held before.

    Raises:
        TrialFailure: NOT_STOPPED, with what is still held.
    """
    gpus = source or open_nvml()
    before = _memory_used(gpus) if gpus else {}
    yield
    if gpus and (held := await_memory_released(before, gpus)):
        raise TrialFailure(
            FailureKind.NOT_STOPPED,
            "; ".join(held),
            hint="End the processes that hold it (`tuner doctor` lists them), then run again.",
        )


def _memory_used(source: GpuSource) -> Mapping[int, int]:
    return {reading.index: reading.memory_used for reading in source.read()}


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
def _decoded_death(bench: Bench, plan: LaunchPlan, server: ServerProcess) -> Iterator[None]:
    """A server that died while measured is reported in the words of its own log."""
    try:
        yield
    except TrialFailure as failure:
        is_doomed = said_last_words(server, bench.engine.probe(plan.args).last_words)
        decoded = exit_failure(server, bench.engine.classify, is_doomed=is_doomed)
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
    last_words = bench.engine.probe(plan.args).last_words
    watchdog = Watchdog(server, last_words=last_words)
    wire = bench.engine.wire(plan.args)
    return LoadClient(
        server.base_url,
        wire,
        bench.workload,
        alive=watchdog.alive,
        count_tokens=local_counter(tokenizer_folders(plan.args.flags)),
    )


def _read_back(
    bench: Bench, plan: LaunchPlan, server: ServerProcess, client: LoadClient, run: ServerRun
) -> None:
    """What really runs: effective values, drift from what was asked, the workers' environment."""
    with run.timing("launch"):
        path = bench.engine.effective_path()
        text = client.get_text(path) if path else log_head(server.log_path)
        run.effective = bench.engine.parse_effective(text or "")
        if run.effective:
            run.effective |= bench.engine.parse_start_log(log_head(server.log_path))
        run.drifts = bench.engine.drift(plan.args, run.effective)
        changed = environment_drift(plan.args.env, server.environments())
    for drift in run.drifts:
        asked = f"{drift.name}: asked {drift.requested}, runs {drift.effective}"
        run.warnings.append(drift.message or asked)
    run.warnings += [str(each) for each in changed]


def log_head(path: Path) -> str:
    """The start of a server log."""
    with path.open("rb") as handle:
        return handle.read(LOG_HEAD_BYTES).decode(errors="replace")


def effective_digest(run: ServerRun) -> str:
    """Identity of what really ran; empty when the engine told nothing."""
    return digest_of(run.effective) if run.effective else ""
