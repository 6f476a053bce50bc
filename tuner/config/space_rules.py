"""Owns the rules between parameters: names, conditions, constraints.

Works on documents, so that what is broken elsewhere hides nothing here. Knows no engine.
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tuner.args import UNSET
from tuner.config.document import DocPath, Document, Place
from tuner.config.includes import Declared, Source
from tuner.config.messages import show
from tuner.config.space import Scalar
from tuner.expressions import Expression, ExpressionError, MissingName, check_names, parse

MAX_COMBINATIONS = 20_000
"""Value combinations on which an expression is tried before it is trusted."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset({"min", "max", "abs", "true", "false", "baseline", UNSET, *keyword.kwlist})


@dataclass(slots=True)
class MergedSpace:
    """All parameters of a study by name, and the constraints with their places."""

    declared: dict[str, Declared] = field(default_factory=dict)
    constraints: list[tuple[Document, DocPath, str]] = field(default_factory=list)

    def values(self, name: str) -> tuple[Scalar, ...] | None:
        """The values of a parameter; None while it is broken."""
        config = self.declared[name].config
        return config.values() if config is not None else None


def merge(sources: Iterable[Source]) -> MergedSpace:
    """Merge the sources in order; names that are not disjoint or not names are reported."""
    merged = MergedSpace()
    for source in sources:
        for declared in source.parameters():
            _check_name(declared)
            first = merged.declared.setdefault(declared.name, declared)
            if first is not declared:
                where = f"{first.document.label}:{first.document.key_places[first.path].line}"
                _report_key(
                    declared, f"must have a name of its own, first at {where}", "Rename it."
                )
        merged.constraints += [(source.document, *rest) for rest in source.constraints()]
    return merged


def _check_name(declared: Declared) -> None:
    if not _NAME.fullmatch(declared.name) or declared.name in _RESERVED:
        fixed = re.sub(r"\W", "_", declared.name)
        hint = f"Write {fixed}." if _NAME.fullmatch(fixed) and fixed != declared.name else ""
        message = "must be named with letters, digits and underscores, and by no reserved word"
        _report_key(declared, f"{message}, got {declared.name}", hint)


def _report_key(declared: Declared, message: str, hint: str) -> None:
    problem = declared.document.problem(declared.path, message, hint, of_key=True)
    declared.document.problems.append(problem)


def check_conditions(space: MergedSpace) -> None:
    """Every `when` parses, names parameters before it, and can hold."""
    earlier: list[str] = []
    for name, declared in space.declared.items():
        path = (*declared.path, "when")
        text = declared.document.get(path)
        if isinstance(text, str) and path not in declared.document.surprises:
            _Check(space, declared.document, path, text).run(earlier)
        earlier.append(name)


def check_constraints(space: MergedSpace) -> None:
    """Every constraint parses, names known parameters, and can be satisfied."""
    seen: set[str] = set()
    for document, path, text in space.constraints:
        if text in seen:
            message = f"must be given once, got {text} again"
            document.problems.append(document.problem(path, message, "Remove one of them."))
            continue
        seen.add(text)
        _Check(space, document, path, text).run(list(space.declared))


@dataclass(frozen=True, slots=True)
class _Check:
    """One expression at its place."""

    space: MergedSpace
    document: Document
    path: DocPath
    text: str

    def run(self, known: list[str]) -> None:
        """Report what is wrong with the expression when only these names may be used."""
        try:
            expression = parse(self.text)
        except ExpressionError as error:
            self._report(error)
            return
        wrong = self._name_errors(expression, known) or self._value_errors(expression)
        for found in wrong:
            self._report(found)

    def _report(self, error: ExpressionError) -> None:
        place = place_inside(self.document, self.path, self.text, error.offset)
        problem = self.document.problem_at(place, self.path, error.message, error.hint)
        self.document.problems.append(problem)

    def _name_errors(self, expression: Expression, known: list[str]) -> list[ExpressionError]:
        later = {use.name: use for use in expression.uses if use.name not in known}
        too_late = [
            ExpressionError(
                f"must name parameters declared before this one, got {use.name}",
                use.offset,
                f"Declare {use.name} above it.",
            )
            for use in later.values()
            if use.name in self.space.declared
        ]
        return [*check_names(expression, self.space.declared), *too_late]

    def _value_errors(self, expression: Expression) -> list[ExpressionError]:
        """Evaluate on the values of the names used: the first error, or that it never holds."""
        names = sorted(expression.names)
        columns = [self.space.values(name) for name in names]
        present = [column for column in columns if column is not None]
        if len(present) < len(columns):
            return []
        held = False
        rows = list(itertools.islice(itertools.product(*present), MAX_COMBINATIONS))
        for row in rows:
            try:
                held |= _answer(expression, dict(zip(names, row, strict=True)))
            except ExpressionError as error:
                return [error]
        is_sure = len(rows) < MAX_COMBINATIONS
        return [] if held or not is_sure else [ExpressionError(_NEVER, 0, _NEVER_HINT)]


_NEVER = "must hold for some of the values, got none"
_NEVER_HINT = "Compare with values the parameters have; text is quoted and written as in choices."


def _answer(expression: Expression, env: Mapping[str, Scalar]) -> bool:
    """The answer at these values; raises ExpressionError that names the values."""
    try:
        result = expression.evaluate(env)
    except MissingName:
        return True
    except ExpressionError as error:
        where = ", ".join(f"{name}={show(value)}" for name, value in env.items())
        raise ExpressionError(f"{error.message}, at {where}", error.offset, error.hint) from None
    if not isinstance(result, bool):
        hint = "Compare it with something."
        raise ExpressionError(f"must be true or false, got {show(result)}", 0, hint)
    return result


def place_inside(document: Document, path: DocPath, text: str, offset: int) -> Place:
    """Where a character of a scalar stands, when it is written on one line as it is."""
    place = document.place(path)
    lines = document.text.splitlines()
    rest = lines[place.line - 1][place.column - 1 :] if place.line <= len(lines) else ""
    if rest.startswith(text):
        return Place(place.line, place.column + offset)
    if rest[1:].startswith(text):
        return Place(place.line, place.column + 1 + offset)
    return place
