"""Owns the connection to an existing Ray cluster: tasks with GPUs, queues, lost workers.

The only module that imports ray, and only when a study asks for it. Knows no trials.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tuner.config.study import RayExecution
from tuner.errors import HostError, UsageError

CONNECT_S = 60
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Cluster:
    """A connected cluster: `ray` is the module, `execution` what the study asks of it."""

    ray: Any
    execution: RayExecution

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start a task that has one server's GPUs; a lost task is not started again by Ray."""
        options = {"num_gpus": self.execution.gpus_per_server, "num_cpus": 1, "max_retries": 0}
        return self.ray.remote(**options)(function).remote(*arguments)

    def call(self, function: Callable[..., Any], *arguments: Any, timeout_s: float) -> Any:
        """The result of a task.

        Raises:
            HostError: no node could run it in time, or it failed there.
        """
        task = self.submit(function, *arguments)
        try:
            return self.ray.get(task, timeout=timeout_s)
        except self.ray.exceptions.RayError as error:
            self.ray.cancel(task, force=True)
            raise HostError(
                f"Ray cluster: a node with {self.execution.gpus_per_server} free GPUs must answer "
                f"within {timeout_s:g} s, got: {last_line(error)}.",
                "Look at `ray status`; the tuner and the engine must be installed on every node.",
            ) from error

    def queue(self) -> Any:
        """A queue that lives on this machine, as long as this connection."""
        strategy = importlib.import_module("ray.util.scheduling_strategies")
        here = self.ray.get_runtime_context().get_node_id()
        placed = strategy.NodeAffinitySchedulingStrategy(node_id=here, soft=False)
        options = {"num_cpus": 0, "scheduling_strategy": placed}
        return importlib.import_module("ray.util.queue").Queue(actor_options=options)

    def taken(self, source: Any, seconds: float) -> Any:
        """The next thing in a queue, None after so many seconds without."""
        with contextlib.suppress(self.ray.util.queue.Empty):
            return source.get(timeout=seconds)
        return None

    def is_over(self, task: Any) -> bool:
        """True when a task has ended or was lost."""
        return bool(self.ray.wait([task], timeout=0)[0])

    def why_lost(self, task: Any) -> str:
        """What became of a task that ended without a word."""
        try:
            self.ray.get(task, timeout=CONNECT_S)
        except self.ray.exceptions.RayError as error:
            return last_line(error)
        return "it ended without a result"


def last_line(error: BaseException) -> str:
    """The telling line of one of Ray's long texts."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]


@contextlib.contextmanager
def connected(execution: RayExecution) -> Iterator[Cluster]:
    """Be connected to the study's cluster for the life of the block.

    Raises:
        UsageError: ray is not installed, or the cluster cannot hold so many servers.
        HostError: there is no such cluster.
    """
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.util.queue")
    except ImportError as error:
        raise UsageError(
            "execution.kind: ray must be installed, got none.",
            "Install: pip install 'speculative-tuner[ray]'",
        ) from error
    try:
        ray.init(
            address=execution.address, namespace="tuner", log_to_driver=False,
            logging_level="ERROR", ignore_reinit_error=True,
        )  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise HostError(
            f"execution.address: a Ray cluster must answer at {execution.address}, "
            f"got: {last_line(error)}.",
            "Start one with `ray start --head`, or correct execution.address.",
        ) from error
    try:
        require_room(execution, ray.nodes())
        with contextlib.redirect_stdout(sys.stderr):  # Ray prints the cluster's news; not a result
            yield Cluster(ray, execution)
    finally:
        ray.shutdown()


def require_room(execution: RayExecution, nodes: list[dict[str, Any]]) -> None:
    """Refuse more servers than the cluster can ever hold; raises UsageError."""
    alive = [node["Resources"] for node in nodes if node.get("Alive")]
    each = execution.gpus_per_server
    room = sum(
        int(min(node.get("CPU", 0), node.get("GPU", 0) // each if each else float("inf")))
        for node in alive
    )
    if room < execution.parallel:
        gpus = ", ".join(f"{node.get('GPU', 0):g}" for node in alive)
        raise UsageError(
            f"execution.parallel: must be at most {room} for servers of {each} GPUs on nodes with "
            f"{gpus or 'no'} GPUs, got {execution.parallel}.",
            "Lower execution.parallel or execution.gpus_per_server, or add nodes.",
        )
