"""Owns the `space:` section and the search-space file: parameters and constraints as written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tuner.args import UNSET
from tuner.config.base import Frozen, Issue, exactly_one, schema_with_one_of
from tuner.config.environment import check_name
from tuner.config.messages import show

Scalar = bool | int | float | str

MAX_VALUES = 2_000
"""Most values one range may have; more is a mistake in step or log."""

_FLAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(\.[A-Za-z0-9_-]+)*")


def _pair(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class ParameterConfig(Frozen):
    """One parameter as written: a flag or an environment variable, and what it may be.

    Exactly one of `flag`, `env`; exactly one of `int`, `float`, `choices`. `step` is the distance
    of neighbouring values; `log` is the base of a geometric grid instead.
    """

    model_config = schema_with_one_of(("flag", "env"), ("int", "float", "choices"))

    flag: str | None = Field(
        default=None, description="The engine's flag, without dashes; dots lead into its JSON."
    )
    env: str | None = Field(default=None, description="The environment variable.")
    int_: Annotated[tuple[int, int] | None, BeforeValidator(_pair)] = Field(
        default=None, alias="int", description="[low, high], both ends included."
    )
    float_: Annotated[tuple[float, float] | None, BeforeValidator(_pair)] = Field(
        default=None, alias="float", description="[low, high], both ends included."
    )
    choices: list[Scalar] | None = Field(
        default=None, description="Values of one type; unset leaves the flag or variable out."
    )
    step: int | float | None = Field(default=None, description="Distance of neighbouring values.")
    log: int | float | None = Field(
        default=None, description="Base of a geometric grid: low, low * base, … and high."
    )
    when: str | None = Field(
        default=None, description="Condition on earlier parameters; else this one is absent."
    )
    note: str | None = Field(default=None, description="Free text.")

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
        grid = _grid(self._range(), self.step, self.log)
        if self.int_ is not None:
            return tuple(dict.fromkeys(round(value) for value in grid))
        return tuple(float(value) for value in grid)

    def _range(self) -> tuple[float, float]:
        bounds = self.int_ or self.float_
        assert bounds is not None, "values are asked for only of a valid parameter"
        return bounds

    def issues(self) -> Iterator[Issue]:
        """One target, one domain, and a domain whose values can be listed."""
        yield from exactly_one(self, ("flag", "env"))
        yield from exactly_one(self, ("int_", "float_", "choices"))
        yield from self._target_issues()
        if self.choices is not None:
            yield from _choice_issues(self.choices, is_env=self.env is not None)
            for name in ("step", "log"):
                if getattr(self, name) is not None:
                    yield Issue("must stand beside int or float", f"Remove {name}.", (name,), True)
        elif (self.int_ is None) != (self.float_ is None):
            yield from self._range_issues()

    def _target_issues(self) -> Iterator[Issue]:
        if self.flag is not None:
            issue = check_flag(self.flag, ("flag",))
            if issue:
                yield issue
        if self.env is not None:
            issue = check_name(self.env, ("env",))
            if issue:
                yield issue

    def _range_issues(self) -> Iterator[Issue]:
        key = "int" if self.int_ is not None else "float"
        low, high = self._range()
        if low >= high:
            hint = f"Write [{high}, {low}]." if low > high else "Fix it in engine.args instead."
            yield Issue(f"must have low below high, got {show([low, high])}", hint, (key,))
        elif self.step is not None and self.log is not None:
            yield Issue("must not stand beside step", "Remove step or log.", ("log",), is_key=True)
        elif self.log is not None:
            yield from _log_issues(self.log, low, high, key)
        else:
            yield from self._step_issues(low, high, key)

    def _step_issues(self, low: float, high: float, key: str) -> Iterator[Issue]:
        step = self.step if self.step is not None else (1 if key == "int" else None)
        if step is None:
            hint = f"Add step: {float(f'{(high - low) / 10:.1g}'):g}, or log: 2."
            message = "must have a step or log, so that its values are finite"
            yield Issue(message, hint, is_absence=True)
        elif step <= 0:
            yield Issue(f"must be above 0, got {step}", "", ("step",))
        elif key == "int" and not isinstance(step, int):
            yield Issue(f"must be a whole number, got {step}", "", ("step",))
        else:
            yield from _fit_issues(step, low, high, key)


def check_flag(flag: str, at: tuple[str | int, ...]) -> Issue | None:
    """The issue of a flag's name, if there is one."""
    bare = flag.lstrip("-")
    if bare != flag:
        return Issue(f"must have no leading dashes, got {flag}", f"Write {bare}.", at, is_key=True)
    if not _FLAG.fullmatch(flag):
        hyphens = flag.replace("_", "-")
        hint = f"Write {hyphens}." if _FLAG.fullmatch(hyphens) else "Write the bare name."
        return Issue(f"must be the engine's own hyphenated name, got {flag!r}", hint, at, True)
    return None


_EXACT = Context(prec=1000)
"""Digits enough for every float: a sum that rounds would let a grid stand still."""


def _grid(bounds: tuple[float, float], step: float | None, log: float | None) -> Iterator[Decimal]:
    """Exact decimal arithmetic: three steps of 0.1 are 0.3 here."""
    value, end = Decimal(str(bounds[0])), Decimal(str(bounds[1]))
    distance = Decimal(str(step if step is not None else 1))
    factor = Decimal(str(log)) if log is not None else None
    while value < end:
        yield value
        value = (
            _EXACT.multiply(value, factor) if factor is not None else _EXACT.add(value, distance)
        )
    yield end


def _log_issues(base: float, low: float, high: float, key: str) -> Iterator[Issue]:
    if base <= 1:
        yield Issue(f"must be a base above 1, got {base}", "Write log: 2.", ("log",))
    elif low <= 0:
        yield Issue(f"must begin above 0 with log, got {show([low, high])}", "", (key,))
    elif math.log(high) - math.log(low) > MAX_VALUES * math.log(base):
        yield _too_many(("log",))


def _fit_issues(step: float, low: float, high: float, key: str) -> Iterator[Issue]:
    first, last, distance = (Decimal(str(number)) for number in (low, high, step))
    count, rest = _EXACT.divmod(_EXACT.subtract(last, first), distance)
    if count > MAX_VALUES:
        yield _too_many(("step",) if step != 1 else (key,))
    elif rest:
        below = first + count * distance
        message = f"must reach high in whole steps, got {show([low, high])} with step {step}"
        yield Issue(message, f"Write [{low}, {below}] or [{low}, {below + distance}].", (key,))


def _too_many(at: tuple[str | int, ...]) -> Issue:
    return Issue(f"must give at most {MAX_VALUES:,} values", "Write a larger step, or log: 2.", at)


def _choice_issues(choices: list[Scalar], *, is_env: bool) -> Iterator[Issue]:
    typed = [value for value in choices if value != UNSET]
    kinds = list(dict.fromkeys(_KINDS[type(value)] for value in typed))
    if not choices:
        yield Issue("must have a value, got []", "Write the values in brackets.", ("choices",))
    if len(kinds) > 1:
        message = f"must be of one type, got {' and '.join(kinds)} in {show(choices)}"
        yield Issue(message, _one_type_hint(kinds), ("choices",))
    else:
        yield from _distinct_issues(choices)
    if is_env and any(isinstance(value, str) and "\0" in value for value in typed):
        yield Issue("must not hold a NUL character, which no program gets", at=("choices",))
    if is_env and "switches" in kinds:
        message = f"must be text or numbers for a variable, got {show(choices)}"
        yield Issue(message, "Write 1 and 0.", ("choices",))


_KINDS: dict[type, str] = {
    bool: "switches",
    int: "whole numbers",
    float: "decimal numbers",
    str: "text",
}


def _one_type_hint(kinds: list[str]) -> str:
    if set(kinds) == {"whole numbers", "decimal numbers"}:
        return "Write the whole numbers with .0."
    return "Write all of them as numbers, or all in quotes; unset may stand beside any."


def _distinct_issues(choices: list[Scalar]) -> Iterator[Issue]:
    repeats = [value for i, value in enumerate(choices) if value in choices[:i]]
    if repeats:
        ordinal = ["second", "third", "fourth"][min(choices.count(repeats[0]) - 2, 2)]
        hint = f"Remove the {ordinal} {show(repeats[0]).strip(chr(39))}."
        yield Issue(f"values must be distinct, got {show(choices)}", hint, ("choices",))


class SpaceFile(Frozen):
    """A search space for studies to include."""

    include: list[str] = Field(
        default_factory=list,
        description="More space files, relative to this file, or shipped:NAME.yaml.",
    )
    parameters: dict[str, ParameterConfig] = Field(
        default_factory=dict, description="Parameters by name, in order."
    )
    constraints: list[str] = Field(
        default_factory=list, description="What every legal point satisfies."
    )
    note: str | None = Field(default=None, description="Free text.")


class SpaceConfig(Frozen):
    """What is searched: included space files, inline parameters, constraints, start points."""

    include: list[str] = Field(
        default_factory=list,
        description="Space files, relative to the study file, or shipped:NAME.yaml.",
    )
    parameters: dict[str, ParameterConfig] = Field(
        default_factory=dict, description="Parameters by name, in order, after the included ones."
    )
    constraints: list[str] = Field(
        default_factory=list, description="What every legal point satisfies."
    )
    start: list[dict[str, Scalar]] = Field(
        default_factory=list, description="Known-good points, measured right after the baseline."
    )
