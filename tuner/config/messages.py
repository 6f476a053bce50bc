"""Owns the words for what a validator found: what must hold, what was got, what to write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tuner.config.base import nearest

_EXPECTED = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list of two numbers",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "none_required": "nothing",
    "json_invalid": "a plain value",
}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}
_SHOWN = 60


def show(value: Any) -> str:
    """A value as problems quote it, on one line and not too long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        text = "[" + ", ".join(show(item) for item in value) + "]"
    else:
        text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def describe(errors: list[Mapping[str, Any]], value: Any) -> tuple[str, str]:
    """Message and hint for all validator errors at one place, whose plain value is given."""
    kinds = [str(error["type"]) for error in errors]
    context = errors[0].get("ctx", {})
    if kinds[0] in _BOUNDS:
        key, word = _BOUNDS[kinds[0]]
        return f"must be {word} {context[key]:g}, got {show(value)}", ""
    if kinds[0] == "literal_error":
        return _one_of(re.findall(r"'([^']*)'", str(context["expected"])), value)
    if kinds[0] in ("too_long", "too_short", "missing"):
        return f"must be a list of two numbers, got {show(value)}", "Write [low, high]."
    if kinds[0] == "string_pattern_mismatch":
        return f"must be {_pattern(context['pattern'])}, got {show(value)}", ""
    return _wrong_type(kinds, errors[0], value)


def describe_kind(kinds: list[str], value: Any) -> tuple[str, str]:
    """Message and hint for the `kind` of a section that has several."""
    if value is None:
        return "must be given", f"Add kind: with one of {', '.join(kinds)}."
    return _one_of(kinds, value)


def _one_of(allowed: list[str], value: Any) -> tuple[str, str]:
    near = nearest(value, allowed) if isinstance(value, str) else None
    hint = f"Did you mean {near}?" if near else ""
    return f"must be one of {', '.join(allowed)}, got {show(value)}", hint


def _wrong_type(kinds: list[str], error: Mapping[str, Any], value: Any) -> tuple[str, str]:
    expected = list(dict.fromkeys(_EXPECTED[kind] for kind in kinds if kind in _EXPECTED))
    if not expected:
        return f"{error['msg']}, got {show(value)}", ""
    if "a number" in expected and "a whole number" in expected:
        expected.remove("a whole number")
    *first, last = expected
    allowed = f"{', '.join(first)} or {last}" if first else last
    return f"must be {allowed}, got {show(value)}", _type_hint(expected, value)


def _type_hint(expected: list[str], value: Any) -> str:
    if "text" in expected and isinstance(value, bool | int | float):
        return f"Write '{show(value)}' in quotes."
    if isinstance(value, str) and "true or false" in expected:
        return "Write true or false without quotes."
    if isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value):
        return f"Write {value} without quotes."
    if value is None and {"text", "a number", "true or false"} <= set(expected):
        return "Write unset to leave it out."
    if expected == ["a mapping"] and isinstance(value, list):
        return "Write `key: value` instead of a list."
    if value is None and "a mapping" in expected:
        return "Remove the key, or write {}."
    if value is None and "a list" in expected:
        return "Remove the key, or write []."
    if "a list" in expected and not isinstance(value, list | dict):
        return f"Write [{value}]."
    return ""


_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$": (
        "1 to 100 letters, digits, dots, hyphens or underscores, beginning with a letter or digit"
    )
}


def _pattern(pattern: str) -> str:
    return _PATTERNS.get(pattern, f"text that matches {pattern}")
