"""Owns the rule of start points: each is a legal point of the space, said completely.

Knows no engine: what an engine refuses is found when the space is surveyed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner.args import UNSET
from tuner.config.base import nearest
from tuner.config.document import DocPath, Document
from tuner.config.messages import show
from tuner.config.space import ParameterConfig, Scalar
from tuner.config.space_rules import MergedSpace
from tuner.expressions import ExpressionError, parse

Point = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class _Finding:
    message: str
    hint: str = ""
    name: str = ""
    is_key: bool = True


def check_start(space: MergedSpace, document: Document, path: DocPath) -> None:
    """Every start point has known names, legal values, satisfies all, and leaves nothing open."""
    points = document.get(path)
    for index in range(len(points) if isinstance(points, list) else 0):
        for finding in _findings_at(space, document, (*path, index), points[:index]):
            at = (*path, index, finding.name) if finding.name else (*path, index)
            problem = document.problem(at, finding.message, finding.hint, of_key=finding.is_key)
            document.problems.append(problem)


def _findings_at(
    space: MergedSpace, document: Document, at: DocPath, earlier: list[Point]
) -> list[_Finding]:
    """What is wrong with one point; nothing where it is no mapping of plain values at all."""
    point = document.get(at)
    is_plain = isinstance(point, dict) and all(
        isinstance(value, bool | int | float | str) and (*at, name) not in document.surprises
        for name, value in point.items()
    )
    if is_plain and repr(point) in map(repr, earlier):
        return [_Finding("must be distinct", "Remove one of them.")]
    return list(_findings(space, point)) if is_plain else []


def _findings(space: MergedSpace, point: Point) -> Iterator[_Finding]:
    for name in point:
        if name not in space.declared:
            near = nearest(name, space.declared)
            hint = f"Did you mean {near}?" if near else f"Known: {', '.join(space.declared)}."
            yield _Finding(f"must name a parameter, got {name}", hint, name)
    configs = {name: declared.config for name, declared in space.declared.items()}
    sound = {name: config for name, config in configs.items() if config is not None}
    if len(sound) == len(configs):
        yield from _value_findings(space, sound, point)


def _value_findings(
    space: MergedSpace, configs: Mapping[str, ParameterConfig], point: Point
) -> Iterator[_Finding]:
    full: dict[str, Scalar] = {}
    is_sound = True
    for name, config in configs.items():
        finding = _finding_of(name, config, point, full)
        if finding:
            is_sound = False
            yield finding
        elif _exists(config, full):
            full[name] = point.get(name, UNSET)
    for _, _, text in space.constraints if is_sound else ():
        if not _is_satisfied(text, full):
            yield _Finding(f"must satisfy {text}", "Change the point or the constraint.")


def _finding_of(
    name: str, config: ParameterConfig, point: Point, before: Point
) -> _Finding | None:
    values = config.values()
    if not _exists(config, before):
        message = f"must not stand where {config.when} is false, got {name}"
        return _Finding(message, f"Remove {name}.", name) if name in point else None
    if name not in point:
        message = f"must say every parameter that exists, got no {name}"
        return None if UNSET in values else _Finding(message, f"Add {name}.")
    if _is_among(point[name], values):
        return None
    message = f"must be one of {show(list(values))}, got {show(point[name])}"
    return _Finding(message, "", name, is_key=False)


def _exists(config: ParameterConfig, before: Point) -> bool:
    """True also where the condition is broken: that is reported at the condition."""
    try:
        return config.when is None or parse(config.when).holds(before)
    except ExpressionError:
        return True


def _is_satisfied(text: str, point: Point) -> bool:
    try:
        return parse(text).is_satisfied(point)
    except ExpressionError:
        return True


def _is_among(value: Scalar, values: tuple[Scalar, ...]) -> bool:
    return any(type(value) is type(other) and value == other for other in values)
