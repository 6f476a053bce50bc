"""Owns `StudyConfig`: the whole study file as typed, frozen values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from tuner.config.base import Duration, Frozen, Issue, exactly_one, repeated
from tuner.config.engine import EngineConfig
from tuner.config.metric_names import DIRECTIONS, unknown_metric
from tuner.config.space import SpaceConfig
from tuner.config.workload import LoadConfig, WorkloadConfig


class ObjectiveConfig(Frozen):
    """One metric to maximise or minimise, the load point it is read at, outcome constraints."""

    maximize: str | None = None
    minimize: str | None = None
    at: LoadConfig | None = None
    constraints: list[str] = Field(default_factory=list)

    @property
    def metric(self) -> str:
        """The name of the metric that is optimised."""
        return self.maximize or self.minimize or ""

    @property
    def direction(self) -> str:
        """`maximize` or `minimize`."""
        return "maximize" if self.maximize is not None else "minimize"

    def issues(self) -> Iterator[Issue]:
        """One known metric in its own direction; outcome constraints that can be computed."""
        yield from exactly_one(self, ("maximize", "minimize"))
        for direction in ("maximize", "minimize"):
            metric = getattr(self, direction)
            if metric is not None and metric not in DIRECTIONS:
                yield unknown_metric(metric, (direction,))
            elif metric is not None and DIRECTIONS[metric] != direction:
                message = f"must name a metric that one would {direction}, got {metric!r}"
                yield Issue(message, f"Write {DIRECTIONS[metric]}: {metric}.", (direction,))
        yield from repeated(self.constraints, ("constraints",))


class SearchConfig(Frozen):
    """How the space is searched. `keep_going`: launch on although no draft is ever accepted."""

    sampler: Literal["model", "tpe", "gp", "random", "grid"] = "model"
    pruner: Literal["paired", "wilcoxon", "median", "none"] = "paired"
    seed: int = 7
    startup_trials: int = Field(default=5, ge=1)
    baseline_every: int = Field(default=8, ge=0)
    keep_going: bool = False


class BudgetConfig(Frozen):
    """What the search may spend: server launches and wall time (seconds)."""

    launches: int = Field(default=30, ge=1)
    wall: Duration | None = Field(default=None, gt=0)


class ConfirmConfig(Frozen):
    """How many finalists are re-launched, in how many interleaved rounds."""

    finalists: int = Field(default=3, ge=1)
    rounds: int = Field(default=4, ge=2)
    max_rounds: int | None = Field(default=None, ge=2)

    def issues(self) -> Iterator[Issue]:
        """Room for the planned rounds."""
        if self.max_rounds is not None and self.max_rounds < self.rounds:
            message = f"must be at least rounds ({self.rounds}), got {self.max_rounds}"
            yield Issue(message, f"Write {self.rounds} or more.", ("max_rounds",))


class FidelityConfig(Frozen):
    """Whether outputs are compared with the baseline's, and how strictly."""

    compare: Literal["greedy_text", "off"] = "greedy_text"
    tolerance: Literal["calibrated", "strict"] = "calibrated"


class LocalExecution(Frozen):
    """Trials run on this machine; `parallel` servers side by side."""

    kind: Literal["local"] = "local"
    parallel: int = Field(default=1, ge=1)
    gpus: list[int] | None = None

    def issues(self) -> Iterator[Issue]:
        """GPU numbers as the driver counts them."""
        for index, gpu in enumerate(self.gpus or []):
            if gpu < 0:
                yield Issue(f"must be at least 0, got {gpu}", "", ("gpus", index))
        yield from repeated(self.gpus or [], ("gpus",))


class RayExecution(Frozen):
    """Trials run as tasks of an existing Ray cluster."""

    kind: Literal["ray"]
    address: str = "auto"
    gpus_per_server: int = Field(default=1, ge=0)
    parallel: int = Field(default=1, ge=1)


ExecutionConfig = Annotated[LocalExecution | RayExecution, Field(discriminator="kind")]


class StudyConfig(Frozen):
    """A validated study file; what `tuner check` accepts."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    engine: EngineConfig
    space: SpaceConfig
    workload: WorkloadConfig
    objective: ObjectiveConfig
    search: SearchConfig = SearchConfig()
    budget: BudgetConfig = BudgetConfig()
    confirm: ConfirmConfig = ConfirmConfig()
    fidelity: FidelityConfig = FidelityConfig()
    execution: ExecutionConfig = LocalExecution()
    storage: str | None = None
    note: str | None = None
