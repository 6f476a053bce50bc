"""Owns what a plain YAML scalar means: YAML 1.2's core values, and the surprises of YAML 1.1.

A text that two YAML readers understand differently is a `Surprise`: refused, with what to write
instead. Knows no file and no position.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

PlainValue: TypeAlias = bool | int | float | str | None

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_SWITCHES = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_HEX = re.compile(r"[-+]?0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+][0-9]+)?")
_EXPONENT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+")
_OCTAL = re.compile(r"[-+]?0[0-9_]+")
_OCTAL_12 = re.compile(r"0o[0-7]+")
_BINARY = re.compile(r"[-+]?0b_*[01][01_]*")
_GROUPED_HEX = re.compile(r"[-+]?0x_*[0-9a-fA-F][0-9a-fA-F_]*")
_NO_DIGITS = re.compile(r"[-+]?0[xb]_+")
_GROUPED = re.compile(r"(?=.*_)[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([Tt \t].*)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
MAX_DIGITS = 40


@dataclass(frozen=True, slots=True)
class Surprise:
    """A plain text that YAML readers disagree about: what it must be, and what to write."""

    text: str
    message: str
    hint: str


def resolve_plain(text: str) -> PlainValue | Surprise:
    """The value of an unquoted scalar, or why it must not be written like this."""
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if not (text[0].isdigit() or text[0] in "-+."):
        return _switch(text) if text.lower() in _SWITCHES else text
    if len(text) > MAX_DIGITS and (_INT.fullmatch(text) or _FLOAT.fullmatch(text)):
        return _surprise(text, f"must have at most {MAX_DIGITS} digits", "Write fewer digits.")
    return _number(text)


def _number(text: str) -> PlainValue | Surprise:
    if _INT.fullmatch(text):
        return int(text)
    if _HEX.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text):
        return _finite(text)
    return _numeric_surprise(text) or text


def _finite(text: str) -> float | Surprise:
    value = float(text)
    if abs(value) == float("inf"):
        return _surprise(text, "must be a finite number", "Write a number below 1.0e+308.")
    return value


def _switch(text: str) -> Surprise:
    word = _SWITCHES[text.lower()]
    return _surprise(
        text,
        "must be written so that every YAML reader agrees",
        f"Write {word} for a switch, or '{text}' in quotes for text.",
    )


def _numeric_surprise(text: str) -> Surprise | None:
    agree = "must be written so that every YAML reader agrees"
    quoted = f"'{text}' in quotes for text"
    if _EXPONENT.fullmatch(text):
        number = float(text)
        is_short = abs(number) < 1e15 and number == int(number)
        plain = f"{number:.0f}" if is_short else _exponent_form(number)
        return _surprise(text, agree, f"Write {plain} for the number, or {quoted}.")
    if _OCTAL.fullmatch(text):
        digits = text.replace("_", "").lstrip("+-0") or "0"
        octal = f" ({int(digits, 8)} if octal is meant)" if set(digits) <= set("01234567") else ""
        return _surprise(text, agree, f"Write {digits}{octal}, or {quoted}.")
    if any(form.fullmatch(text) for form in (_OCTAL_12, _BINARY, _GROUPED_HEX)):
        return _surprise(text, agree, f"Write {int(text.replace('_', ''), 0)}, or {quoted}.")
    if _GROUPED.fullmatch(text):
        return _surprise(text, agree, f"Write {text.replace('_', '')}, or {quoted}.")
    if _SEXAGESIMAL.fullmatch(text):
        return _surprise(text, agree, f"Write a duration such as 90s, or {quoted}.")
    if _NO_DIGITS.fullmatch(text):
        return _surprise(text, agree, f"Write {quoted}.")
    if _DATE.fullmatch(text):
        return _surprise(text, "must not be an unquoted date", f"Write {quoted}.")
    if _SPECIAL.fullmatch(text):
        return _surprise(text, "must be a finite number", "Write the largest value you mean.")
    return None


def _exponent_form(number: float) -> str:
    """The number as every YAML reader takes it: with a point and a signed exponent."""
    if number == 0 or abs(number) == float("inf") or 1e-4 <= abs(number) < 1e15:
        return repr(number) if abs(number) != float("inf") else "a number below 1.0e+308"
    mantissa, _, exponent = f"{number!r}".partition("e")
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{mantissa}e{int(exponent):+d}"


def _surprise(text: str, must: str, hint: str) -> Surprise:
    shown = text if len(text) <= MAX_DIGITS else f"{text[:MAX_DIGITS]}…"
    return Surprise(text, f"{must}, got {shown}", hint)
