"""Owns the base of every configuration model: frozen, strict, nothing unknown accepted."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from tuner.units import parse_duration


class Frozen(BaseModel):
    """Frozen, strict, and closed: booleans are not integers, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _duration(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


Duration = Annotated[float, BeforeValidator(_duration)]
"""Seconds; written as a number of seconds or as text such as `90s`, `30m`, `6h`."""
