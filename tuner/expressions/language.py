"""Owns `Expression`: a parsed constraint or condition, its names and its value.

Language: `+ - * / // % **`, chained comparisons, `and or not`, `in [..]`, `a if c else b`,
`min max abs`, numbers, 'text', `true false`, and `unset` for the choice of that name.
A name without a value (a parameter that does not exist at a point) makes the whole answer
unknown, unless `and`, `or` or `if` decides before it is needed: an unknown constraint is
satisfied, an unknown condition is false. Knows neither spaces nor metrics.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tuner.expressions.compiler import Compiler, Env, Name, Run, syntax_tree
from tuner.expressions.operators import ExpressionError, MissingName, truth_of


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression: its text, the names it uses, and its value for given names."""

    text: str
    uses: tuple[Name, ...]
    _run: Run = field(repr=False, compare=False)

    @property
    def names(self) -> frozenset[str]:
        """The names the expression uses."""
        return frozenset(use.name for use in self.uses)

    def evaluate(self, env: Env) -> Any:
        """The value; raises MissingName, or ExpressionError when it cannot be computed."""
        return self._run(env)

    def is_satisfied(self, env: Env) -> bool:
        """Read as a constraint: true also where a parameter it needs does not exist."""
        try:
            return truth_of(self._run(env))
        except MissingName:
            return True

    def holds(self, env: Env) -> bool:
        """Read as a condition: false where a parameter it needs does not exist."""
        try:
            return truth_of(self._run(env))
        except MissingName:
            return False


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """The expression of a text; raises ExpressionError with the offset of the first mistake."""
    body, shift = syntax_tree(text)
    compiler = Compiler(text, shift)
    run = compiler.compile(body)
    return Expression(text, tuple(compiler.uses), run)


def check_names(expression: Expression, known: Iterable[str]) -> list[ExpressionError]:
    """One error per unknown name, with the nearest known one as hint."""
    known = sorted(known)
    return [
        ExpressionError(
            f"must name known parameters, got {use.name}", use.offset, _near(use, known)
        )
        for use in {use.name: use for use in reversed(expression.uses)}.values()
        if use.name not in known
    ]


def _near(use: Name, known: list[str]) -> str:
    matches = difflib.get_close_matches(use.name, known, n=1, cutoff=0.6)
    if matches:
        return f"Did you mean {matches[0]}?"
    return f"Known names: {', '.join(known)}. Write text in quotes." if known else ""
