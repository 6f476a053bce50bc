"""Owns `StudyConfig`: the whole study file as typed, frozen values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from tuner.config.base import (
    Frozen,
    Issue,
    PositiveDuration,
    exactly_one,
    repeated,
    schema_with_one_of,
)
from tuner.config.engine import EngineConfig
from tuner.config.metric_names import DIRECTIONS, NOT_COMPARED, metrics_to, unknown_metric
from tuner.config.space import SpaceConfig
from tuner.config.workload import LoadConfig, WorkloadConfig


class ObjectiveConfig(Frozen):
    """One metric to maximise or minimise, the load point it is read at, outcome constraints."""

    model_config = schema_with_one_of(("maximize", "minimize"))

    maximize: str | None = Field(
        default=None,
        description="Metric where more is better.",
        json_schema_extra={"examples": [*metrics_to("maximize")]},
    )
    minimize: str | None = Field(
        default=None,
        description="Metric where less is better.",
        json_schema_extra={"examples": [*metrics_to("minimize")]},
    )
    at: LoadConfig | None = Field(
        default=None, description="One of the load points; required when there are several."
    )
    constraints: list[str] = Field(
        default_factory=list,
        description="What a server must keep, such as ttft_p95_ms <= 1.10 * baseline.",
    )

    @property
    def metric(self) -> str:
        """The name of the metric that is optimised."""
        return self.maximize or self.minimize or ""

    @property
    def direction(self) -> str:
        """`maximize` or `minimize`."""
        return "maximize" if self.maximize is not None else "minimize"

    def issues(self) -> Iterator[Issue]:
        """One known metric in its own direction; no outcome constraint twice."""
        yield from exactly_one(self, ("maximize", "minimize"))
        for direction in ("maximize", "minimize"):
            metric = getattr(self, direction)
            if metric is not None and metric not in DIRECTIONS:
                yield unknown_metric(metric, (direction,))
            elif metric is not None and DIRECTIONS[metric] != direction:
                message = f"must name a metric that one would {direction}, got {metric!r}"
                yield Issue(message, f"Write {DIRECTIONS[metric]}: {metric}.", (direction,))
            elif metric in NOT_COMPARED:
                message = f"must name a metric that the baseline has too, got {metric!r}"
                hint = (
                    f"Write maximize: output_tokens_per_s: {NOT_COMPARED[metric]}. Every trial "
                    "shows its acceptance and errors, and objective.constraints may bound them."
                )
                yield Issue(message, hint, (direction,))
        yield from repeated(self.constraints, ("constraints",))


class SearchConfig(Frozen):
    """How the space is searched."""

    sampler: Literal["model", "tpe", "gp", "random", "grid"] = Field(
        default="model", description="Who suggests the next server."
    )
    pruner: Literal["paired", "wilcoxon", "median", "none"] = Field(
        default="paired", description="Who stops a hopeless trial early."
    )
    seed: int = Field(default=7, description="Makes the order of prompts and suggestions repeat.")
    startup_trials: int = Field(
        default=5, ge=1, description="Trials before the sampler learns from them."
    )
    baseline_every: int = Field(
        default=8, ge=0, description="Measure the baseline again after so many trials; 0: never."
    )
    learn_from: Literal["auto"] | list[str] = Field(
        default_factory=list,
        description="Earlier studies to learn from: databases, results folders or names; auto: "
        "all in the same results folder. Acceptance carries over for the same model, draft and "
        "prompts; costs for the same host, engine version and model.",
    )
    expected_acceptance_length: float | None = Field(
        default=None,
        gt=1,
        allow_inf_nan=False,
        description="What the draft is known to reach at its best depth, bonus token included: "
        "a study whose best server falls short of it says so.",
    )
    keep_going: bool = Field(
        default=False,
        description="Launch on although the draft is never accepted, or the host is unfit.",
    )


class BudgetConfig(Frozen):
    """What the search may spend: server launches and wall time."""

    launches: int = Field(default=30, ge=1, description="Server launches, the baseline included.")
    wall: PositiveDuration | None = Field(default=None, description="Wall time of the search.")


class ConfirmConfig(Frozen):
    """How many finalists are re-launched, in how many interleaved rounds."""

    finalists: int = Field(default=3, ge=1, description="Best servers to launch again.")
    rounds: int = Field(
        default=4, ge=2, description="Launches of each finalist and of the baseline, at least."
    )
    max_rounds: int | None = Field(
        default=None,
        ge=2,
        description="At most so many, where launches vary so much that more rounds are planned "
        "before the first one; null: twice rounds.",
    )

    @property
    def most_rounds(self) -> int:
        """The rounds that are never exceeded."""
        return self.max_rounds or 2 * self.rounds

    def issues(self) -> Iterator[Issue]:
        """Room for the planned rounds."""
        if self.max_rounds is not None and self.max_rounds < self.rounds:
            message = f"must be at least rounds ({self.rounds}), got {self.max_rounds}"
            yield Issue(message, f"Write {self.rounds} or more.", ("max_rounds",))


class FidelityConfig(Frozen):
    """Whether outputs are compared with the baseline's, and how strictly."""

    compare: Literal["greedy_text", "off"] = Field(
        default="greedy_text",
        description="Texts (above temperature 0: their distributions), or nothing.",
    )
    tolerance: Literal["calibrated", "strict"] = Field(
        default="calibrated",
        description="calibrated: as far as the baseline differs from itself; strict: not at all.",
    )


class LocalExecution(Frozen):
    """Trials run on this machine; `parallel` servers side by side."""

    kind: Literal["local"] = "local"
    parallel: int = Field(default=1, ge=1, description="Servers side by side.")
    gpus: list[int] | None = Field(default=None, description="GPUs that may be used; null: all.")
    gpus_per_server: int | None = Field(
        default=None, ge=1, description="GPUs of one server; null: its parallel sizes, or a share."
    )

    def issues(self) -> Iterator[Issue]:
        """GPU numbers as the driver counts them."""
        for index, gpu in enumerate(self.gpus or []):
            if gpu < 0:
                yield Issue(f"must be at least 0, got {gpu}", "", ("gpus", index))
        yield from repeated(self.gpus or [], ("gpus",))


class RayExecution(Frozen):
    """Trials run as tasks of an existing Ray cluster."""

    kind: Literal["ray"]
    address: str = Field(default="auto", description="Of the cluster's head.")
    gpus_per_server: int = Field(default=1, ge=0, description="GPUs one trial reserves.")
    parallel: int = Field(default=1, ge=1, description="Servers at the same time.")


ExecutionConfig = Annotated[LocalExecution | RayExecution, Field(discriminator="kind")]


class StudyConfig(Frozen):
    """A validated study file; what `tuner check` accepts."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Names the folder under results/.",
    )
    engine: EngineConfig
    space: SpaceConfig
    workload: WorkloadConfig
    objective: ObjectiveConfig
    search: SearchConfig = SearchConfig()
    budget: BudgetConfig = BudgetConfig()
    confirm: ConfirmConfig = ConfirmConfig()
    fidelity: FidelityConfig = FidelityConfig()
    execution: ExecutionConfig = LocalExecution()
    storage: str | None = Field(
        default=None, description="Database URL; null: sqlite:///results/NAME/study.db."
    )
    note: str | None = Field(default=None, description="Free text.")
