"""Owns making any value fit into strict JSON; knows neither files nor databases."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any


def json_safe(value: Any) -> Any:
    """The value as strict JSON would hold it.

    Numbers of numpy become Python's, NaN and infinities become None, tuples and sets become
    lists, keys become text, and anything else its text.
    """
    if isinstance(value, Enum):
        return json_safe(value.value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return _container(value)


def _container(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((json_safe(item) for item in value), key=str)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return _foreign(value)


def _foreign(value: Any) -> Any:
    to_list = getattr(value, "tolist", None)  # numpy scalars and arrays, without importing numpy
    if callable(to_list) and not isinstance(value, Path):
        return json_safe(to_list())
    return str(value)


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """Strict JSON text of any value; never `NaN`, never an exception for an odd type."""
    return json.dumps(json_safe(value), allow_nan=False, indent=indent)


def clean_text(text: str, limit: int | None = None) -> str:
    """Text that any file or database takes: no lone surrogates, no NUL, at most `limit` long."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\ufffd")[:limit]
