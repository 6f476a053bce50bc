"""Owns the `space:` section and the search-space file: parameters and constraints as written."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tuner.config.base import Frozen

Scalar = bool | int | float | str

MAX_VALUES = 10_000
"""Most values one range may have; more is a mistake in step or log."""


def _pair(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class ParameterConfig(Frozen):
    """One parameter as written: a flag or an environment variable, and what it may be.

    Exactly one of `flag`, `env`; exactly one of `int`, `float`, `choices`. `step` is the distance
    of neighbouring values; `log` is the base of a geometric grid instead.
    """

    flag: str | None = None
    env: str | None = None
    int_: Annotated[tuple[int, int] | None, BeforeValidator(_pair)] = Field(
        default=None, alias="int"
    )
    float_: Annotated[tuple[float, float] | None, BeforeValidator(_pair)] = Field(
        default=None, alias="float"
    )
    choices: list[Scalar] | None = None
    step: int | float | None = None
    log: int | float | None = None
    when: str | None = None
    note: str | None = None

    @property
    def kind(self) -> str:
        """`int`, `float` or `categorical`: how a sampler should see it."""
        if self.choices is not None:
            return "categorical"
        return "int" if self.int_ is not None else "float"

    def values(self) -> tuple[Scalar, ...]:
        """The values in order.

        A range includes both ends. With `log: b` the values are low, low·b, low·b² … below the
        high end (ints rounded, repetitions dropped), and then the high end itself.
        """
        if self.choices is not None:
            return tuple(self.choices)
        if self.int_ is not None:
            return tuple(dict.fromkeys(round(value) for value in self._grid(*self.int_)))
        assert self.float_ is not None
        return tuple(float(value) for value in self._grid(*self.float_))

    def _grid(self, low: float, high: float) -> Iterator[Decimal]:
        """Exact decimal arithmetic: 0.1 · 3 is 0.3 here."""
        value, end = Decimal(str(low)), Decimal(str(high))
        step = Decimal(str(self.step if self.step is not None else 1))
        factor = Decimal(str(self.log)) if self.log is not None else None
        while value < end:
            yield value
            value = value * factor if factor is not None else value + step
        yield end


class SpaceFile(Frozen):
    """A file under search_spaces/; `include` is relative to the file itself."""

    include: list[str] = Field(default_factory=list)
    parameters: dict[str, ParameterConfig] = Field(default_factory=dict)
    constraints: list[str] = Field(default_factory=list)
    note: str | None = None


class SpaceConfig(Frozen):
    """The `space:` section of a study; `include` is relative to the study file."""

    include: list[str] = Field(default_factory=list)
    parameters: dict[str, ParameterConfig] = Field(default_factory=dict)
    constraints: list[str] = Field(default_factory=list)
    start: list[dict[str, Scalar]] = Field(default_factory=list)
