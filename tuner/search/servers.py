"""Owns servers as numbers: one row per distinct server of a space, for models that interpolate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.args import Params, ServerArgs
from tuner.model.gaussian import Array
from tuner.search.sampling import Ground
from tuner.search.strategies import is_ordered
from tuner.space import Parameter

DEPTH = ("num-steps", "n-max", "speculative_tokens", "speculative-tokens", "steps")
"""Endings of the flags that say how far a draft runs ahead, most telling first."""

ABSENT = 0.5
"""Where a parameter that does not exist stands: near to all its values."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """Every server of a ground as a row; columns span 0 to 1."""

    rows: Array

    @classmethod
    def of(cls, ground: Ground) -> Encoding:
        """Numbers by the logarithm of their rank-preserving value, choices one column each."""
        points = [params for params, _ in ground.survey.servers]
        columns = [
            column
            for parameter in ground.space.parameters
            for column in _columns(parameter, points)
        ]
        kept = [column for column in columns if np.ptp(column) > 0]
        return cls(np.array(kept).T if kept else np.zeros((len(points), 1)))


def _columns(parameter: Parameter, points: Sequence[Params]) -> Iterator[Array]:
    if is_ordered(parameter):
        place = _places(parameter)
        yield np.array([place.get(point.get(parameter.name), ABSENT) for point in points])
        return
    for value in parameter.values:
        chosen = [float(point.get(parameter.name) == value) for point in points]
        yield np.array(chosen) / math.sqrt(2.0)


def _places(parameter: Parameter) -> dict[object, float]:
    """Where each value stands between 0 and 1: by its logarithm where all are positive."""
    values = [float(value) for value in parameter.values]
    if min(values) > 0:
        values = [math.log(value) for value in values]
    elif min(values) == 0:
        values = [math.log1p(value) for value in values]
    low, high = min(values), max(values)
    width = (high - low) or 1.0
    return {
        original: (value - low) / width
        for original, value in zip(parameter.values, values, strict=True)
    }


def depth_of(server: tuple[Params, ServerArgs]) -> float:
    """How deep a server's draft is, chains before trees; the first launch is the deepest."""
    flags = server[1].flags
    numbers = {name: number(value) for name, value in flags.items() if number(value)}
    depth = max((numbers[n] for n in numbers if n.endswith(DEPTH)), default=0.0)
    topk = max((numbers[n] for n in numbers if n.endswith("topk")), default=1.0)
    return depth - 1000.0 * (topk > 1)


def number(value: object) -> float:
    """A flag's value as a number; 0 for anything else."""
    return float(value) if isinstance(value, int | float) and value is not True else 0.0
