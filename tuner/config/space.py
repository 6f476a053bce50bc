"""Owns the `space:` section and the search-space file: parameters and constraints as written."""

from __future__ import annotations

from pydantic import Field

from tuner.config.base import Frozen

Scalar = bool | int | float | str


class ParameterConfig(Frozen):
    """One parameter as written: a flag or an environment variable, and what it may be.

    Exactly one of `flag`, `env`; exactly one of `int`, `float`, `choices`. `log` is the base of a
    geometric grid (ints) or marks a log scale (floats, with `step` absent needs `points`).
    """

    flag: str | None = None
    env: str | None = None
    int_: tuple[int, int] | None = Field(default=None, alias="int")
    float_: tuple[float, float] | None = Field(default=None, alias="float")
    choices: list[Scalar] | None = None
    step: int | float | None = None
    log: int | float | None = None
    when: str | None = None
    note: str | None = None


class SpaceFile(Frozen):
    """A file under search_spaces/."""

    parameters: dict[str, ParameterConfig]
    constraints: list[str] = Field(default_factory=list)
    note: str | None = None


class SpaceConfig(Frozen):
    """The `space:` section of a study; `include` is relative to the study file."""

    include: list[str] = Field(default_factory=list)
    parameters: dict[str, ParameterConfig] = Field(default_factory=dict)
    constraints: list[str] = Field(default_factory=list)
    start: list[dict[str, Scalar]] = Field(default_factory=list)
