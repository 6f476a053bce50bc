"""Launches on a cluster, without one: room, the two ends, a lost worker, a cancelled launch.

A real two-node cluster is in tests/e2e/test_ray_study.py.
"""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.config.engine import FakeConfig
from tuner.config.study import RayExecution
from tuner.errors import FailureKind, HostError, Interrupted, TrialFailure, UsageError
from tuner.search import ray_runner
from tuner.search.bench import LaunchPlan, ServerRun, never
from tuner.search.ray_cluster import connected, last_line, require_room
from tuner.search.ray_runner import Expected, RayRunner, WithFiles, is_ordered_end
from tuner.search.remote import Ended, Files


def nodes(*sizes: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"Alive": True, "Resources": {"CPU": c, "GPU": g}} for c, g in sizes]


def execution(**changes: Any) -> RayExecution:
    return RayExecution(kind="ray", **changes)


def test_a_cluster_that_is_too_small_is_refused_by_name() -> None:
    require_room(execution(gpus_per_server=4, parallel=3), nodes((64, 8), (64, 4)))
    with pytest.raises(UsageError, match="at most 2 for servers of 8 GPUs on nodes with 8"):
        require_room(execution(gpus_per_server=8, parallel=3), nodes((64, 8), (64, 8)))
    require_room(execution(gpus_per_server=0, parallel=2), nodes((2, 0)))
    dead = [{"Alive": False, "Resources": {"CPU": 9, "GPU": 9}}]
    with pytest.raises(UsageError, match=r"at most 0 .* with no GPUs"):
        require_room(execution(), dead)


def test_a_missing_ray_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UsageError) as caught, connected(execution()):
        pass
    assert "speculative-tuner[ray]" in caught.value.hint


def test_the_telling_line_of_a_long_text() -> None:
    assert last_line(ValueError("first\n\n  node died\n")) == "ValueError: node died"


@pytest.mark.parametrize(
    ("error", "ordered"),
    [
        (TrialFailure(FailureKind.OUT_OF_MEMORY, "x"), True),
        (TrialFailure(FailureKind.INTERRUPTED, "x"), False),
        (HostError("x"), True),
        (KeyboardInterrupt(), False),
    ],
)
def test_only_what_a_task_said_itself_leaves_its_queues_empty(error: Any, ordered: bool) -> None:
    assert is_ordered_end(error) == ordered


class Queue:
    """One of Ray's queues, in this process."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.is_shut = False

    def put(self, item: Any) -> None:
        self.items.put(item)

    def shutdown(self, force: bool) -> None:
        self.is_shut = True


class Cluster:
    """A cluster whose tasks are threads that play a script."""

    def __init__(self, script: Any, parallel: int = 1) -> None:
        self.script = script
        self.execution = execution(parallel=parallel)
        self.queues: list[Queue] = []
        self.tasks: list[threading.Thread] = []
        self.ray = SimpleNamespace(wait=self._wait, cancel=lambda task, force: None)

    def queue(self) -> Queue:
        self.queues.append(Queue())
        return self.queues[-1]

    def submit(self, function: Any, out: Queue, back: Queue, expected: Any) -> threading.Thread:
        assert function is ray_runner.measure
        task = threading.Thread(target=self.script, args=(out.items, back))
        task.start()
        self.tasks.append(task)
        return task

    def taken(self, source: Queue, seconds: float) -> Any:
        try:
            return source.items.get(timeout=seconds)
        except queue.Empty:
            return None

    def is_over(self, task: threading.Thread) -> bool:
        return not task.is_alive()

    def why_lost(self, task: threading.Thread) -> str:
        return "NodeDiedError: gone"

    def _wait(self, tasks: list[threading.Thread], timeout: float) -> tuple[list[Any], list[Any]]:
        tasks[0].join(timeout=10)
        return tasks, []


@pytest.fixture
def launched(bench: Any, tmp_path: Path) -> Any:
    def launch(cluster: Cluster, runner: RayRunner | None = None) -> tuple[ServerRun, RayRunner]:
        here = bench({})
        nothing: Any = None
        runner = runner or RayRunner(
            cluster,
            FakeConfig(kind="fake"),
            Expected(nothing, nothing),  # type: ignore[arg-type]
        )
        plan = LaunchPlan(3, ServerArgs(), here.workload.blocks, here.loads, tmp_path, "x")
        run = ServerRun()
        runner.run(here, plan, run, never)
        return run, runner

    return launch


def test_a_launch_leaves_its_files_here_and_its_queues_to_the_next(
    launched: Any, tmp_path: Path
) -> None:
    def measure(inbox: Any, outbox: Queue) -> None:
        job = inbox.get(timeout=10)
        job.run.warnings.append("there")
        outbox.put(Files({"server.log": b"log", "../evil": b"e"}))
        outbox.put(Ended(job.run))

    cluster = Cluster(measure)
    run, runner = launched(cluster)
    assert run.warnings == ["there"]
    assert run.log_path == tmp_path / "server.log"
    assert (tmp_path / "server.log").read_bytes() == b"log"
    assert (tmp_path / "evil").read_bytes() == b"e"  # never outside the folder
    launched(cluster, runner)
    assert len(cluster.queues) == 2
    assert not any(each.is_shut for each in cluster.queues)


def test_a_lost_worker_costs_one_launch_that_may_be_repeated(launched: Any) -> None:
    cluster = Cluster(lambda inbox, outbox: None)
    with pytest.raises(TrialFailure, match="Ray worker was lost: NodeDiedError") as caught:
        launched(cluster)
    assert caught.value.kind.retries == 1
    assert all(each.is_shut for each in cluster.queues)


def test_a_cancelled_launch_is_interrupted_once_its_server_has_ended(launched: Any) -> None:
    stopped: list[str] = []
    started = threading.Event()

    def measure(inbox: Any, outbox: Queue) -> None:
        inbox.get(timeout=10)
        started.set()
        assert inbox.get(timeout=10) == "cancel"
        stopped.append("server")

    cluster = Cluster(measure)
    nothing: Any = None
    expected = Expected(nothing, nothing)
    runner = RayRunner(cluster, FakeConfig(kind="fake"), expected)  # type: ignore[arg-type]

    def cancel() -> None:
        assert started.wait(10)
        runner.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(Interrupted):
        launched(cluster, runner)
    thread.join()
    assert stopped == ["server"]
    with pytest.raises(Interrupted, match="before it was launched"):
        launched(cluster, runner)


def test_files_are_said_before_the_end(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(b"log")
    said: list[Any] = []
    channel = WithFiles(said.append, lambda: None, tmp_path)
    channel.send("event")
    channel.send(Ended(ServerRun()))
    assert said[0] == "event"
    assert said[1] == Files({"server.log": b"log"})
    assert isinstance(said[2], Ended)
