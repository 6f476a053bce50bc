"""Owns the search space: parameters, conditions, constraints, enumeration of its points.

Knows neither YAML nor engines nor Optuna. A point is a `Params` mapping that holds exactly the
parameters whose condition is true; `UNSET` is an ordinary choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tuner.args import Params, ParamValue


@dataclass(frozen=True, slots=True)
class Parameter:
    """One dimension. Exactly one of `flag` (may be a dotted JSON path) and `env` is set.

    `values` is the finite, ordered list of values it can take (ints and floats expanded by step
    or log base); `kind` says how a sampler should see it.
    """

    name: str
    kind: str  # "int" | "float" | "categorical"
    values: tuple[ParamValue, ...]
    flag: str | None = None
    env: str | None = None
    when: str | None = None
    log: float | None = None


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Parameters in order, and the constraints every legal point satisfies."""

    parameters: tuple[Parameter, ...]
    constraints: tuple[str, ...] = field(default=())
    start: tuple[Mapping[str, ParamValue], ...] = field(default=())

    def parameter(self, name: str) -> Parameter:
        """The parameter of this name; raises KeyError."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def points(self) -> Iterator[Params]:
        """Every point in order, conditions applied, constraints not."""
        raise AssertionError("built in the space branch")

    def broken_constraints(self, point: Params) -> list[str]:
        """The constraint texts a point does not satisfy."""
        raise AssertionError("built in the space branch")
