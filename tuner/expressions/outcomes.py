"""Owns outcome constraints: one metric, one comparison, a bound that may use the baseline.

Knows no metric: which names exist is the caller's to check.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass

from tuner.expressions.compiler import Compiler, syntax_tree
from tuner.expressions.language import Expression
from tuner.expressions.operators import ExpressionError, number_of

_OUTCOME_OPS = {ast.LtE: "<=", ast.Lt: "<", ast.GtE: ">=", ast.Gt: ">", ast.Eq: "=="}
BASELINE = "baseline"
"""The name of the baseline's value of the same metric in an outcome constraint."""


@dataclass(frozen=True, slots=True)
class OutcomeConstraint:
    """`METRIC OP EXPRESSION OF baseline`, such as `ttft_p95_ms <= 1.10 * baseline`."""

    text: str
    metric: str
    op: str
    bound: Expression

    def limit(self, baseline: float | None) -> float:
        """The bound as a number; raises MissingName when it needs a baseline that is absent."""
        is_absent = baseline is None or math.isnan(baseline)
        env = {} if is_absent else {BASELINE: baseline}
        return float(number_of(self.bound.evaluate(env)))

    def violation(self, value: float, baseline: float | None = None) -> float:
        """How far the value is on the wrong side, relative to the bound; <= 0 is satisfied.

        The scale is the bound's magnitude (1 where the bound is 0). A NaN value is violated by 1.
        Raises MissingName as `limit` does.
        """
        limit = self.limit(baseline)
        if math.isnan(value):
            return 1.0
        excess = value - limit if self.op in ("<=", "<") else limit - value
        if self.op == "==":
            excess = abs(value - limit)
        if self.op in ("<", ">") and excess == 0:
            return 1e-9
        return excess / (abs(limit) or 1.0)


def parse_outcome(text: str) -> OutcomeConstraint:
    """The outcome constraint of a text; raises ExpressionError with an offset."""
    tree, shift = syntax_tree(text)
    compiler = Compiler(text, shift)
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
        raise compiler.error(tree, "must compare one metric with one bound", _OUTCOME_HINT)
    op = _OUTCOME_OPS.get(type(tree.ops[0]))
    if op is None or not isinstance(tree.left, ast.Name):
        raise compiler.error(
            tree, "must start with a metric and <=, <, >=, > or ==", _OUTCOME_HINT
        )
    bound = compiler.compile(tree.comparators[0])
    expression = Expression(text, tuple(compiler.uses), bound)
    for use in expression.uses:
        if use.name != BASELINE:
            raise ExpressionError(
                f"must have only numbers and baseline in the bound, got {use.name}",
                use.offset,
                "Write the metric on the left, as in ttft_p95_ms <= 1.10 * baseline.",
            )
    return OutcomeConstraint(text, tree.left.id, op, expression)


_OUTCOME_HINT = "Write it as ttft_p95_ms <= 1.10 * baseline or error_rate == 0."
