"""Owns what stays the same for every launch of a study, and what one launch leaves behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tuner.args import ServerArgs
from tuner.engines.base import Drift, Engine, EngineFacts
from tuner.events import Observer
from tuner.measure.prompts import Workload
from tuner.measure.records import Acceptance, Block, LoadPoint, Prompt
from tuner.search.objective import Objective
from tuner.server.command import LaunchCommand
from tuner.store.record import Seconds


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything a launch needs that does not change between launches."""

    study: str
    engine: Engine
    facts: EngineFacts
    workload: Workload
    objective: Objective
    launch_timeout_s: float
    observer: Observer
    runner: ServerRunner
    fingerprint: str = ""

    @property
    def loads(self) -> tuple[LoadPoint, ...]:
        """Load points in measuring order: the objective's first, so that pruning saves most."""
        others = tuple(load for load in self.workload.loads if load != self.objective.load)
        return (self.objective.load, *others)


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One launch to be measured: the server, its prompts and load points, where files go.

    `start` gives the command for a port where it is not the engine's own (a bundle's script).
    """

    number: int
    args: ServerArgs
    blocks: tuple[tuple[Prompt, ...], ...]
    loads: tuple[LoadPoint, ...]
    folder: Path
    label: str
    start: Callable[[int], LaunchCommand] | None = None

    def command(self, engine: Engine, port: int) -> LaunchCommand:
        """What starts the server on 127.0.0.1:`port`."""
        return self.start(port) if self.start else engine.command(self.args, port)


@dataclass(slots=True)
class ServerRun:
    """What one launch left behind, filled as it goes so that a failure keeps what there was.

    `partial` is a block that was cut short: stored, never scored. `is_virtual`: the parts were
    timed on a virtual clock, their sum is the total.
    """

    effective: dict[str, Any] = field(default_factory=dict)
    drifts: list[Drift] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    partial: Block | None = None
    acceptance: dict[LoadPoint, Acceptance] = field(default_factory=dict)
    block_acceptance: dict[tuple[LoadPoint, int], Acceptance] = field(default_factory=dict)
    cycle: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)
    is_virtual: bool = False
    log_path: Path | None = None
    started: float = field(default_factory=time.monotonic)

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        """Add the wall time of the body to a part, also when it raises."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.spent[part] = self.spent.get(part, 0.0) + time.monotonic() - begin

    def start_again(self, note: str) -> None:
        """Forget what a failed attempt measured; its time and the note stay."""
        self.effective.clear()
        self.drifts.clear()
        self.blocks.clear()
        self.acceptance.clear()
        self.block_acceptance.clear()
        self.cycle.clear()
        self.partial = None
        self.warnings = [note]

    def seconds(self) -> Seconds:
        """Where the time went; on a virtual clock the parts add up to the total."""
        total = sum(self.spent.values()) if self.is_virtual else time.monotonic() - self.started
        parts = {name: round(value, 3) for name, value in self.spent.items()}
        return Seconds(total=round(total, 3), **parts)


StopEarly = Callable[[ServerRun, LoadPoint], bool]
"""Called after each block at the objective's load; True ends the measurement."""


class ServerRunner(Protocol):
    """Runs one planned launch: on this machine, on a cluster, or from a recorded landscape."""

    @property
    def is_simulated(self) -> bool:
        """True when nothing real is launched; every result is labelled so."""
        ...

    def run(self, bench: Bench, plan: LaunchPlan, run: ServerRun, stop_early: StopEarly) -> None:
        """Measure the planned server into `run`; raises TrialFailure or Interrupted."""
        ...


def raw_blocks(run: ServerRun) -> tuple[Block, ...]:
    """Everything that was measured, a block that was cut short included: what is stored."""
    return (*run.blocks, run.partial) if run.partial else tuple(run.blocks)


@runtime_checkable
class CrowdRunner(Protocol):
    """A runner that has several launches done at the same time, from as many threads."""

    @property
    def seats(self) -> int:
        """How many launches may run at the same time."""
        ...

    def cancel(self) -> None:
        """Have every running launch end as interrupted; returns at once."""
        ...


def never(run: ServerRun, load: LoadPoint) -> bool:
    """The `StopEarly` that measures everything."""
    return False


def blocks_at(run: ServerRun, load: LoadPoint) -> Sequence[Block]:
    """The blocks measured so far at one load point."""
    return [block for block in run.blocks if block.load == load]
