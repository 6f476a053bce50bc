"""Owns what a chart is: a plain Plotly document without plotly, and what all charts share.

Colours are of middle lightness, readable on white and on black; the page sets text and grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import Any

from tuner.store.record import TrialRecord

BLUE, GREEN, ORANGE, RED, GREY = "#3b86d8", "#2c9f6b", "#dd8a1f", "#d0534b", "#8b9099"
STATE_COLOURS = {"baseline": GREY, "complete": BLUE, "pruned": ORANGE, "reused": GREEN}


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart: a stable key, what it says, and its Plotly document."""

    key: str
    title: str
    caption: str
    data: list[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """What Plotly draws, as strict JSON."""
        cleaned: dict[str, Any] = _finite({"data": self.data, "layout": self.layout})
        return cleaned


def described(trial: TrialRecord) -> str:
    """A trial's parameters, safe inside Plotly's text."""
    words = " ".join(f"{name}={value}" for name, value in trial.params.items())
    return escape(words or "speculation off")


def level(value: float, axis: str = "y") -> dict[str, Any]:
    """A dashed line across the chart at a value, with which everything is compared."""
    other = "x" if axis == "y" else "y"
    line = {"color": GREY, "width": 1.5, "dash": "dash"}
    return {
        "type": "line", f"{other}ref": "paper", f"{other}0": 0, f"{other}1": 1,
        f"{axis}0": value, f"{axis}1": value, "line": line,
    }  # fmt: skip


def _finite(value: Any) -> Any:
    """The value without numbers that JSON cannot hold, and without settings left open."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
