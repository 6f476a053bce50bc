"""Owns what operators do with values: bounded arithmetic, ordering, membership, truth.

A value is a boolean, a number or text. A parameter left `unset` has no number: whoever needs one
gets MissingName, as if the parameter did not exist. Knows no syntax.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

UNSET = "unset"
"""The choice that leaves a parameter out; the same text as `tuner.args.UNSET`."""
MAX_EXPONENT = 64
MAX_MAGNITUDE = 1e30


class ExpressionError(ValueError):
    """A text that is not in the language, or cannot be computed; `offset` is 0-based."""

    def __init__(self, message: str, offset: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


class MissingName(LookupError):
    """A name that has no value here: the parameter does not exist at this point."""


def number_of(value: Any, offset: int = 0) -> Any:
    """The value as a number. A parameter left `unset` has none: as if it did not exist."""
    if value == UNSET:
        raise MissingName(UNSET)
    if isinstance(value, str):
        raise ExpressionError(f"must compute with numbers, got {value!r}", offset)
    return value


def truth_of(value: Any, offset: int = 0) -> bool:
    """True or false of a value that is not text; raises as `number_of` does."""
    return bool(number_of(value, offset))


def compute(operation: Callable[[Any, Any], Any], a: Any, b: Any, offset: int) -> Any:
    """The result of an arithmetic operation, bounded; raises ExpressionError."""
    if operation is operator.pow and abs(b) > MAX_EXPONENT:
        raise ExpressionError(f"must have exponents of at most {MAX_EXPONENT}, got {b}", offset)
    try:
        result = operation(a, b)
    except ZeroDivisionError:
        raise ExpressionError("must not divide by zero", offset) from None
    except OverflowError:
        raise ExpressionError(f"must stay below {MAX_MAGNITUDE:g}", offset) from None
    if isinstance(result, complex) or not abs(result) <= MAX_MAGNITUDE:
        raise ExpressionError(f"must stay a real number below {MAX_MAGNITUDE:g}", offset)
    return result


def ordered(test: Callable[[Any, Any], bool], a: Any, b: Any, offset: int) -> bool:
    """The answer of an ordering test; raises on text against number, MissingName on `unset`."""
    if UNSET in (a, b):
        raise MissingName(UNSET)
    if isinstance(a, str) != isinstance(b, str):
        raise ExpressionError(f"must not order text and numbers, got {a!r} and {b!r}", offset)
    return test(a, b)


def is_in(value: Any, members: list[Any]) -> bool:
    """True when a member equals the value."""
    return any(value == member for member in members)


def is_not_in(value: Any, members: list[Any]) -> bool:
    """True when no member equals the value."""
    return not is_in(value, members)
