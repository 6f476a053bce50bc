"""The constraint language and the outcome constraints written in it; never `eval`."""

from tuner.expressions.language import Expression, check_names, parse
from tuner.expressions.operators import ExpressionError, MissingName
from tuner.expressions.outcomes import BASELINE, OutcomeConstraint, parse_outcome

__all__ = [
    "BASELINE",
    "Expression",
    "ExpressionError",
    "MissingName",
    "OutcomeConstraint",
    "check_names",
    "parse",
    "parse_outcome",
]
