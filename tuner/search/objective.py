"""Owns what "better" means: the objective, its load point, paired ratios, outcome constraints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.config.study import ObjectiveConfig
from tuner.config.workload import LoadConfig
from tuner.expressions import OutcomeConstraint, parse_outcome
from tuner.measure.records import LoadPoint, Measurement
from tuner.measure.statistics import log_ratios, robust_center


@dataclass(frozen=True, slots=True)
class Objective:
    """One metric to maximise or minimise at one load point, with outcome constraints."""

    metric: str
    maximize: bool
    load: LoadPoint
    constraints: tuple[OutcomeConstraint, ...] = ()

    @property
    def direction(self) -> str:
        """Optuna's word for the direction."""
        return "maximize" if self.maximize else "minimize"

    @property
    def text(self) -> str:
        """How reports name it: `maximize output_tokens_per_s at c1`."""
        return f"{self.direction} {self.metric} at {self.load.label}"

    def value(self, measurement: Measurement) -> float:
        """The metric at the objective's load point; NaN when it was not reported."""
        return measurement.at(self.load).metrics.get(self.metric, math.nan)

    def block_values(self, measurement: Measurement) -> tuple[float, ...]:
        """The metric per block at the objective's load point."""
        return measurement.at(self.load).per_block.get(self.metric, ())

    def log_gains(self, values: Sequence[float], reference: Sequence[float]) -> tuple[float, ...]:
        """Paired log ratios by block, above 0 is better than the reference whatever the
        direction; blocks where either side is missing or not positive are left out."""
        return log_ratios(values, reference, self.direction)

    def ratio(self, values: Sequence[float], reference: Sequence[float]) -> float | None:
        """Robust centre of the paired ratios by block; above 1 is better."""
        gains = self.log_gains(values, reference)
        return math.exp(robust_center(gains)) if gains else None

    def violations(
        self, metrics: Mapping[str, float], baseline: Mapping[str, float]
    ) -> dict[str, float]:
        """Violation per constraint text: at most 0 when satisfied, infinite when unknown."""
        found = {}
        for constraint in self.constraints:
            value = metrics.get(constraint.metric, math.nan)
            reference = baseline.get(constraint.metric, math.nan)
            found[constraint.text] = constraint.violation(value, reference)
        return found


def load_point(config: LoadConfig) -> LoadPoint:
    """The load point a configuration names."""
    return LoadPoint(config.concurrency, config.rate, config.arrivals, config.trace)


def build_objective(config: ObjectiveConfig, loads: Sequence[LoadPoint]) -> Objective:
    """The objective of a study; with one load point `at` may be absent."""
    return Objective(
        metric=config.maximize or config.minimize or "",
        maximize=config.maximize is not None,
        load=load_point(config.at) if config.at else loads[0],
        constraints=tuple(parse_outcome(text) for text in config.constraints),
    )


def pooled_reference(series: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Per-block geometric mean over several launches of one server (blocks all of them have)."""
    blocks = min((len(values) for values in series), default=0)
    pooled = []
    for index in range(blocks):
        values = [launch[index] for launch in series if launch[index] > 0]
        pooled.append(math.exp(float(np.mean(np.log(values)))) if values else math.nan)
    return tuple(pooled)
