"""Owns the trial table: one line per trial, the same in every screen; plain text, no rich."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner import units
from tuner.args import UNSET
from tuner.events import TrialFinished

STATE = 12
"""Width of the state column; the value column of the same width follows."""

WIDE = 96
"""Narrower terminals have no room for the columns of time beside the parameters."""

_HEADINGS = {
    "output_tokens_per_s": "out tok/s",
    "goodput_per_s": "goodput/s",
    "inter_chunk_ms": "chunk ms",
    "acceptance_length": "accept len",
    "acceptance_rate": "accept rate",
}


def heading(metric: str) -> str:
    """The column heading of a metric, at most 12 characters."""
    return _HEADINGS.get(metric, metric.replace("_", " "))[:12]


def unit_of(metric: str) -> str:
    """The unit that follows a value of a metric in a sentence."""
    if metric.endswith("_ms") or "_ms_" in metric:
        return "ms"
    return {"output_tokens_per_s": "tok/s", "goodput_per_s": "requests/s"}.get(metric, "")


def header(metric: str, width: int | None = None) -> str:
    """The table's first line."""
    cells = (heading(metric), "vs base", "accept", "ttft p95", "time")
    return _row("#", "state", cells, "parameters or reason", width)


def trial_line(trial: TrialFinished, width: int | None = None) -> str:
    """The permanent line of a finished trial, cut to `width` columns if one is given."""
    return running_line(trial, trial.state, trial_text(trial), width)


def running_line(
    trial: TrialFinished, state: str, text: str, width: int | None, clock: str = ""
) -> str:
    """A line with the numbers of `trial`, another state word and another last column."""
    value = None if trial.value is None else _value(trial.value, trial.half_width)
    ttft = None if trial.ttft_p95_ms is None else f"{units.number(trial.ttft_p95_ms)} ms"
    length = None if trial.acceptance_length is None else f"{trial.acceptance_length:.2f}"
    versus = None if trial.vs_baseline is None else units.ratio(trial.vs_baseline)
    cells = (value, versus, length, ttft, clock or units.clock(trial.seconds))
    filled = tuple(cell if cell is not None else "-" for cell in cells)
    return _row(str(trial.number), state, filled, text, width)


def trial_text(trial: TrialFinished) -> str:
    """The last column: parameters, and why there is no value."""
    params = params_text(trial.params)
    if trial.state == "baseline" and not trial.failure:
        return "speculation off"
    if trial.state in ("infeasible", "reused"):
        return trial.reason or params
    if trial.failure:
        named = f"{trial.failure}: {params or 'speculation off'}"
        return f"{named}; {trial.reason}" if trial.reason else named
    if trial.reason:
        return f"{params}, {trial.reason}"
    broken = "".join(f", breaks {text}" for text in trial.broken)
    foreseen = f", predicted {units.ratio(trial.predicted)}" if trial.predicted else ""
    return f"{params}{broken}{foreseen}"


def params_text(params: Mapping[str, Any]) -> str:
    """`steps=3 topk=1`; booleans as on and off, as users write them in prose; what is unset is
    left out, unless nothing else is there."""
    shown = {name: value for name, value in params.items() if value != UNSET} or params
    return " ".join(f"{name}={_scalar(value)}" for name, value in shown.items())


def cut(text: str, width: int | None) -> str:
    """The text, shortened with an ellipsis to fit `width` columns."""
    if width is None or len(text) <= width:
        return text
    return text[: max(0, width - 1)].rstrip() + "…"


def _value(value: float, half_width: float | None) -> str:
    """A value; one without an interval leaves its room, so that digits stay below digits."""
    text = units.plus_minus(value, half_width)
    return text if half_width is not None else text + " " * len(" ±  14")


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _row(number: str, state: str, cells: tuple[str, ...], text: str, width: int | None) -> str:
    value, versus, length, ttft, time = cells
    room = STATE + 2 + 12 - len(state)
    line = f"{number:>4}  {state}{value:>{room}}  {versus:>7}  {length:>6}"
    if width is None or width >= WIDE:
        line += f"  {ttft:>8}  {time:>5}"
    return cut(f"{line}  {text}".rstrip(), width)
