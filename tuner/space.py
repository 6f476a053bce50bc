"""Owns the search space: parameters, conditions, constraints, enumeration of its points.

Knows neither YAML nor engines nor Optuna. A point is a `Params` mapping that holds exactly the
parameters whose condition is true; `UNSET` is an ordinary choice. A condition or constraint that
needs a parameter which does not exist at a point (or is `unset`, where a number is needed) is
unknown there: the constraint counts as satisfied, the condition as false.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tuner.args import UNSET, Params, ParamValue, ServerArgs, digest_of
from tuner.errors import Difference, UsageError
from tuner.expressions import parse

if TYPE_CHECKING:  # config models cost an import of pydantic that `tuner --help` must not pay
    from tuner.config.loader import LoadedStudy
    from tuner.config.space import ParameterConfig

MAX_POINTS = 250_000
"""Largest space that is enumerated: about ten seconds and 300 MB with an engine's rules."""


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

    def exists(self, point: Params) -> bool:
        """True when the condition holds for the values of the parameters before it."""
        return self.when is None or parse(self.when).holds(point)


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

    @property
    def digest(self) -> str:
        """Identity of parameters and constraints; neither order nor start points change it."""
        return digest_of(self.to_json())

    def to_json(self) -> dict[str, object]:
        """Parameters (values, target, condition) and constraints as plain JSON."""
        return {
            "parameters": {p.name: _plain(p) for p in self.parameters},
            "constraints": sorted(self.constraints),
        }

    def upper_bound(self) -> int:
        """Number of points if every parameter existed at each of them."""
        return math.prod(len(parameter.values) for parameter in self.parameters)

    def points(self) -> Iterator[Params]:
        """Every point in order (the last parameter varies fastest), constraints not applied.

        Raises:
            UsageError: the space has more than MAX_POINTS points.
        """
        if self.upper_bound() > MAX_POINTS and self._is_too_large():
            raise self._too_large()
        yield from self._extend({}, 0)

    def _is_too_large(self) -> bool:
        """Counted before anyone spends time on a point: conditions make the bound too high."""
        if all(parameter.when is None for parameter in self.parameters):
            return True
        return any(number == MAX_POINTS for number, _ in enumerate(self._extend({}, 0)))

    def _extend(self, point: dict[str, ParamValue], index: int) -> Iterator[Params]:
        if index == len(self.parameters):
            yield dict(point)
            return
        parameter = self.parameters[index]
        if not parameter.exists(point):
            yield from self._extend(point, index + 1)
            return
        for value in parameter.values:
            point[parameter.name] = value
            yield from self._extend(point, index + 1)
        del point[parameter.name]

    def _too_large(self) -> UsageError:
        largest = sorted(self.parameters, key=lambda p: -len(p.values))[:3]
        sizes = ", ".join(f"{p.name} ({len(p.values)})" for p in largest)
        return UsageError(
            f"space: must have at most {MAX_POINTS:,} points, got more "
            f"(up to {self.upper_bound():,})",
            f"Offer fewer values, or fix some parameters; the largest are {sizes}.",
        )

    def broken_constraints(self, point: Params) -> list[str]:
        """The constraint texts a point does not satisfy."""
        return [text for text in self.constraints if not parse(text).is_satisfied(point)]

    def complete(self, partial: Params) -> Params:
        """The point a start point means: in order, `unset` where nothing is said.

        Raises:
            KeyError: a parameter that exists there has no value and cannot be left unset.
        """
        point: dict[str, ParamValue] = {}
        for parameter in self.parameters:
            if parameter.exists(point):
                silent = UNSET in parameter.values and parameter.name not in partial
                point[parameter.name] = UNSET if silent else partial[parameter.name]
        return point


def _plain(parameter: Parameter) -> dict[str, object]:
    fields = {"kind": parameter.kind, "values": list(parameter.values)}
    optional = {
        "flag": parameter.flag,
        "env": parameter.env,
        "when": parameter.when,
        "log": parameter.log,
    }
    return fields | {name: value for name, value in optional.items() if value is not None}


def build_space(loaded: LoadedStudy) -> SearchSpace:
    """The search space of a loaded study: includes merged, ranges expanded to values."""
    space = SearchSpace(
        parameters=tuple(_parameter(name, config) for name, config in loaded.parameters.items()),
        constraints=tuple(loaded.constraints),
    )
    start = tuple(space.complete(point) for point in loaded.config.space.start)
    return SearchSpace(space.parameters, space.constraints, start)


def _parameter(name: str, config: ParameterConfig) -> Parameter:
    return Parameter(
        name=name,
        kind=config.kind,
        values=config.values(),
        flag=config.flag,
        env=config.env,
        when=config.when,
        log=config.log,
    )


# ---- what is in a space -----------------------------------------------------------------------


class Reason(Protocol):
    """Why a server is not legal; an engine's `Violation` is one."""

    @property
    def message(self) -> str:
        """The rule that is broken, in one line."""
        ...


@dataclass(frozen=True, slots=True)
class SpaceSurvey:
    """Every point of a space sorted into distinct servers, infeasible points and duplicates.

    Args:
        points: number of points; each is exactly one of the three.
        servers: distinct legal servers with the first point that asks for each, in order.
        infeasible: points that break a constraint or whose canonical server breaks a rule.
        duplicates: index of a later point to the index of the first one with the same server.
    """

    points: int
    servers: list[tuple[Params, ServerArgs]]
    infeasible: list[tuple[Params, list[str]]]
    duplicates: dict[int, int]

    def counts(self) -> dict[str, int]:
        """`points`, `distinct`, `infeasible`, `duplicates`: the last three add up to the first."""
        return {
            "points": self.points,
            "distinct": len(self.servers),
            "infeasible": len(self.infeasible),
            "duplicates": len(self.duplicates),
        }


def survey(
    space: SearchSpace,
    canonicalize: Callable[[Params], ServerArgs],
    violations: Callable[[ServerArgs], Sequence[str | Reason]],
) -> SpaceSurvey:
    """Sort every point of the space; raises UsageError when there are too many."""
    result = SpaceSurvey(0, [], [], {})
    first_with: dict[str, int] = {}
    index = -1
    for index, point in enumerate(space.points()):
        args = canonicalize(point)
        reasons = [*space.broken_constraints(point), *map(_text, violations(args))]
        digest = args.digest
        first = first_with.get(digest)
        if reasons:
            result.infeasible.append((point, reasons))
        elif first is not None:
            result.duplicates[index] = first
        else:
            first_with[digest] = index
            result.servers.append((point, args))
    return SpaceSurvey(index + 1, result.servers, result.infeasible, result.duplicates)


def _text(reason: str | Reason) -> str:
    return reason if isinstance(reason, str) else reason.message


def describe_changes(stored: SearchSpace, present: SearchSpace) -> list[Difference]:
    """What differs between two spaces, per parameter and constraint; [] when they are equal."""
    before = {p.name: p for p in stored.parameters}
    after = {p.name: p for p in present.parameters}
    changes = [
        Difference(f"space.parameters.{name}", _shown(before.get(name)), _shown(after.get(name)))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]
    if sorted(stored.constraints) != sorted(present.constraints):
        changes.append(Difference("space.constraints", _joined(stored), _joined(present)))
    return changes


def _shown(parameter: Parameter | None) -> str:
    if parameter is None:
        return "absent"
    target = f"flag {parameter.flag}" if parameter.flag else f"env {parameter.env}"
    when = f" when {parameter.when}" if parameter.when else ""
    return f"{target} {list(parameter.values)}{when}"


def _joined(space: SearchSpace) -> str:
    return "; ".join(space.constraints) or "none"
