"""Owns the base of every configuration model: frozen, strict, closed, with rules of its own."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from tuner.units import parse_duration


@dataclass(frozen=True, slots=True)
class Issue:
    """A rule that a model breaks: where below the model, what must hold, what to do.

    `is_key`: the key is at fault, not its value. `is_absence`: something is missing, which may
    only be the echo of a mistake in it.
    """

    message: str
    hint: str = ""
    at: tuple[str | int, ...] = ()
    is_key: bool = False
    is_absence: bool = False


class Frozen(BaseModel):
    """Frozen, strict, and closed: booleans are not integers, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def issues(self) -> Iterator[Issue]:
        """Rules between the fields that do not hold; overridden where there are any."""
        return iter(())

    @model_validator(mode="before")
    @classmethod
    def _closed(cls, data: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = [key for key in data if key not in known] if isinstance(data, dict) else []
        _raise((_unknown_key(str(key), known) for key in unknown), UNKNOWN_KEYS)
        return data

    @model_validator(mode="after")
    def _rules(self) -> Any:
        _raise(self.issues(), BROKEN_RULES)
        return self


UNKNOWN_KEYS: Final = "unknown_keys"
BROKEN_RULES: Final = "broken_rules"
"""Types of the validator errors that carry issues."""


def _raise(issues: Iterable[Issue], kind: Literal["unknown_keys", "broken_rules"]) -> None:
    found = tuple(issues)
    if found:
        text = "; ".join(f"{issue.message}" for issue in found)
        raise PydanticCustomError(kind, "{text}", {"text": text, "issues": found})


def _unknown_key(key: str, known: list[str]) -> Issue:
    near = nearest(key, known)
    hint = f"Did you mean {near}?" if near else f"Known keys: {', '.join(sorted(known))}."
    return Issue(f"must be a known key, got {key}", hint, (key,), is_key=True)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that looks most like this one, or None."""
    by_shape = {_shape(name): name for name in known}
    matches = difflib.get_close_matches(_shape(word), by_shape, n=1, cutoff=0.7)
    return by_shape[matches[0]] if matches else None


def _shape(word: str) -> str:
    return word.lower().replace("-", "_")


def exactly_one(model: BaseModel, names: tuple[str, ...]) -> Iterator[Issue]:
    """An issue unless exactly one of these fields is given."""
    fields = type(model).model_fields
    given = [fields[name].alias or name for name in names if getattr(model, name) is not None]
    allowed = ", ".join(fields[name].alias or name for name in names)
    if not given:
        message = f"must have exactly one of {allowed}, got none"
        yield Issue(message, "Add one of them.", is_absence=True)
    elif len(given) > 1:
        yield Issue(
            f"must have exactly one of {allowed}, got {' and '.join(given)}",
            f"Remove {' or '.join(given)}.",
        )


def schema_with_one_of(*groups: tuple[str, ...]) -> ConfigDict:
    """A model configuration whose JSON Schema says that exactly one key of each group is given."""
    rules: list[JsonValue] = [
        {"oneOf": [{"required": [key]} for key in group]} for group in groups
    ]
    return ConfigDict(json_schema_extra={"allOf": rules})


def repeated(values: Sequence[object], at: tuple[str | int, ...]) -> Iterator[Issue]:
    """An issue for each value that stands in the list before."""
    for index, value in enumerate(values):
        if value in values[:index]:
            yield Issue(
                f"must be distinct, got {value} again", f"Remove one {value}.", (*at, index)
            )


def _duration(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except ValueError as error:
        _raise(
            [Issue(str(error), "Write seconds as a number or a text such as 90s.")], BROKEN_RULES
        )


PositiveDuration = Annotated[
    float,
    BeforeValidator(_duration),
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]+)?(ms|s|m|h|d)\s*)+$"},
            ],
            "description": "Seconds as a number, or text such as 90s, 30m, 1h30m.",
        }
    ),
]
"""Seconds above 0; written as a number of seconds or as text such as `90s`, `30m`, `6h`."""
