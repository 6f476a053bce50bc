"""Owns the charts of a study as plain Plotly documents: data and layout, no plotly import.

Colours are of middle lightness, readable on white and on black; the page sets text and grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from tuner import units
from tuner.insight.counts import DEPTH, WIDTH, flag_number, point_at
from tuner.insight.leverage import Explanation
from tuner.measure.noise import drift, launch_levels, launch_noise
from tuner.store.record import TrialRecord
from tuner.store.stored import StoredStudy

BLUE, GREEN, ORANGE, RED, GREY = "#3b86d8", "#2c9f6b", "#dd8a1f", "#d0534b", "#8b9099"
STATE_COLOURS = {"baseline": GREY, "complete": BLUE, "pruned": ORANGE, "reused": GREEN}
SHOWN_CURVES = 6

LEAST_RANGE = 0.02
"""Differences between launches are drawn to a scale on which 2 % is large."""


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


def study_figures(study: StoredStudy, found: Explanation) -> dict[str, Figure]:
    """Every chart that the study has data for, by key."""
    makers: tuple[Callable[[StoredStudy, Explanation], Figure | None], ...] = (
        trials_figure, shape_figure, acceptance_figure, cycle_figure, levers_figure,
        crossover_figure, noise_figure,
    )  # fmt: skip
    made = (make(study, found) for make in makers)
    return {figure.key: figure for figure in made if figure is not None}


def _finite(value: Any) -> Any:
    """The value without numbers that JSON cannot hold, and without settings left open."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def described(trial: TrialRecord) -> str:
    """A trial's parameters, safe inside Plotly's text."""
    words = " ".join(f"{name}={value}" for name, value in trial.params.items())
    return escape(words or "speculation off")


# ---- trials ----------------------------------------------------------------------------------
def trials_figure(study: StoredStudy, found: Explanation) -> Figure | None:
    """Every measured trial in order, with the interval of its blocks."""
    measured = [t for t in study.trials if t.value is not None]
    if not measured:
        return None
    data = [_trial_points(state, measured) for state in STATE_COLOURS]
    shapes = []
    if study.baseline is not None and study.baseline.value is not None:
        shapes.append(_level(study.baseline.value))
    layout = {
        "xaxis": {"title": {"text": "trial"}, "dtick": max(1, len(measured) // 15)},
        "yaxis": {"title": {"text": escape(study.metric)}, "rangemode": "tozero"},
        "shapes": shapes,
    }
    caption = "Bars: 95 % interval over the blocks of one launch. Line: the baseline."
    return Figure("trials", "Trials over time", caption, [d for d in data if d["x"]], layout)


def _trial_points(state: str, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    chosen = [t for t in trials if t.state == state]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": state,
        "x": [t.number for t in chosen],
        "y": [t.value for t in chosen],
        "text": [described(t) for t in chosen],
        "hovertemplate": "trial %{x}: %{y:.4g}<br>%{text}<extra></extra>",
        "error_y": {
            "type": "data",
            "array": [t.half_width or 0 for t in chosen],
            "thickness": 1.5,
        },
        "marker": {"size": 9, "color": STATE_COLOURS[state]},
    }


def _level(value: float, axis: str = "y") -> dict[str, Any]:
    other = "x" if axis == "y" else "y"
    line = {"color": GREY, "width": 1.5, "dash": "dash"}
    return {
        "type": "line", f"{other}ref": "paper", f"{other}0": 0, f"{other}1": 1,
        f"{axis}0": value, f"{axis}1": value, "line": line,
    }  # fmt: skip


def shape_figure(study: StoredStudy, found: Explanation) -> Figure | None:
    """Speed by depth, one line per width: the best trial of each."""
    best: dict[float, dict[float, TrialRecord]] = {}
    for trial in study.trials:
        depth = flag_number(trial, DEPTH)
        if depth is None or trial.vs_baseline is None or trial.state not in STATE_COLOURS:
            continue
        row = best.setdefault(flag_number(trial, WIDTH) or 1.0, {})
        if depth not in row or (row[depth].vs_baseline or 0) < trial.vs_baseline:
            row[depth] = trial
    if not best or max(len(row) for row in best.values()) < 2:
        return None
    data = [_shape_line(width, row, len(best)) for width, row in sorted(best.items())]
    layout = {
        "xaxis": {"title": {"text": "drafted positions (steps)"}, "dtick": 1},
        "yaxis": {"title": {"text": "ratio to the baseline"}},
        "shapes": [_level(1.0)],
        "showlegend": len(data) > 1,
    }
    caption = "The fastest trial of each depth and width; above the line is faster than no draft."
    return Figure("shape", "Speed by draft depth and width", caption, data, layout)


def _shape_line(width: float, row: dict[float, TrialRecord], lines: int) -> dict[str, Any]:
    depths = sorted(row)
    chosen = [row[depth] for depth in depths]
    colours = (BLUE, ORANGE, GREEN, RED, GREY)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"topk {width:g}",
        "x": depths,
        "y": [t.vs_baseline for t in chosen],
        "text": [f"trial {t.number}: {described(t)}" for t in chosen],
        "hovertemplate": "%{y:.2f}x<br>%{text}<extra></extra>",
        "error_y": {"type": "data", "array": [_relative(t) for t in chosen], "thickness": 1.5},
        "line": {"color": colours[int(math.log2(max(width, 1))) % len(colours)]},
        "marker": {"size": 8},
    }


def _relative(trial: TrialRecord) -> float:
    if not trial.value or not trial.half_width or not trial.vs_baseline:
        return 0.0
    return trial.half_width / trial.value * trial.vs_baseline


# ---- speculation -----------------------------------------------------------------------------
def acceptance_figure(study: StoredStudy, found: Explanation) -> Figure | None:
    """Share of drafts accepted up to each position: the explained trial and the deepest others."""
    from tuner.insight.curve import curve_of

    known = [t for t in study.trials if t.acceptance_per_position and t.state in STATE_COLOURS]
    chosen = found.trial.number if found.trial else -1
    known.sort(key=lambda t: (t.number != chosen, -len(t.acceptance_per_position), t.number))
    data = []
    for place, trial in enumerate(known[:SHOWN_CURVES]):
        curve = curve_of(trial.acceptance, trial.acceptance_length)
        if curve is not None:
            data.append(_curve_line(trial, curve.positions, is_first=place == 0))
    if not data:
        return None
    layout = {
        "xaxis": {"title": {"text": "position"}, "dtick": 1},
        "yaxis": {"title": {"text": "accepted"}, "tickformat": ".0%", "range": [0, 1]},
    }
    caption = "Share of drafts accepted up to each position, with 95 % binomial intervals."
    return Figure("acceptance", "Acceptance by position", caption, data, layout)


def _curve_line(trial: TrialRecord, positions: Sequence[Any], *, is_first: bool) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"trial {trial.number}, length {trial.acceptance_length:.2f}",
        "x": [each.number for each in positions],
        "y": [each.share for each in positions],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [each.high - each.share for each in positions],
            "arrayminus": [each.share - each.low for each in positions],
            "thickness": 1,
        },
        "opacity": 1.0 if is_first else 0.55,
        "line": {"width": 3 if is_first else 1.5, "color": BLUE if is_first else None},
        "hovertemplate": f"{described(trial)}<br>position %{{x}}: %{{y:.1%}}<extra></extra>",
    }


def cycle_figure(study: StoredStudy, found: Explanation) -> Figure | None:
    """The parts of one step as one bar."""
    cycle = found.cycle
    if cycle is None:
        return None
    colours = {"draft": ORANGE, "verify": BLUE, "other": GREY}
    seconds = {"draft": cycle.draft, "verify": cycle.verify, "other": cycle.other}
    data = [
        {
            "type": "bar", "orientation": "h", "name": name, "y": ["step"],
            "x": [seconds[name] * 1000], "marker": {"color": colours[name]},
            "text": [f"{name} {share:.0%}" if share > 0.08 else ""], "textposition": "inside",
            "insidetextanchor": "middle",
            "hovertemplate": f"{name} %{{x:.3g}} ms ({share:.1%})<extra></extra>",
        }
        for name, share in cycle.shares.items()
    ]  # fmt: skip
    layout = {
        "barmode": "stack",
        "height": 190,
        "xaxis": {"title": {"text": "ms per step"}},
        "yaxis": {"visible": False},
    }
    known = "timed by the engine" if cycle.basis == "measured" else "fitted to the trials' counts"
    caption = f"One step of trial {cycle.trial}, {known}."
    return Figure("cycle", "Where the time of a step goes", caption, data, layout)


def levers_figure(study: StoredStudy, found: Explanation) -> Figure | None:
    """Every lever's ratio with its interval, the largest on top."""
    levers = list(reversed(found.levers))
    if not levers:
        return None
    data = [
        {
            "type": "scatter", "mode": "markers", "showlegend": False,
            "x": [each.ratio for each in levers], "y": [each.name for each in levers],
            "text": [escape(each.change) for each in levers],
            "error_x": {
                "type": "data", "symmetric": False, "thickness": 2, "color": GREY,
                "array": [max(0.0, each.high - each.ratio) for each in levers],
                "arrayminus": [max(0.0, each.ratio - each.low) for each in levers],
            },
            "marker": {
                "size": 11,
                "color": [GREEN if each.basis == "measured" else BLUE for each in levers],
            },
            "hovertemplate": "%{y}: %{x:.2f}x<br>%{text}<extra></extra>",
        }
    ]  # fmt: skip
    layout = {
        "height": 110 + 42 * len(levers),
        "xaxis": {"title": {"text": "ratio (1 = no change)"}},
        "yaxis": {"automargin": True},
        "shapes": [_level(1.0, "x")],
    }
    caption = "Green was measured, blue is predicted by the model of the cycle."
    return Figure("levers", "Levers", caption, data, layout)


# ---- load and noise --------------------------------------------------------------------------
def crossover_figure(study: StoredStudy, found: Explanation) -> Figure | None:
    """The ratio to the baseline by concurrency."""
    points = found.crossover.points if found.crossover else ()
    if len(points) < 2:
        return None
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "showlegend": False,
            "x": [each.concurrency for each in points], "y": [each.ratio for each in points],
            "error_y": {
                "type": "data", "symmetric": False, "thickness": 1.5,
                "array": [max(0.0, each.high - each.ratio) for each in points],
                "arrayminus": [max(0.0, each.ratio - each.low) for each in points],
            },
            "line": {"color": BLUE}, "marker": {"size": 9},
            "hovertemplate": "concurrency %{x}: %{y:.2f}x baseline<extra></extra>",
        }
    ]  # fmt: skip
    ticks = [each.concurrency for each in points]
    layout = {
        "xaxis": {"title": {"text": "concurrency"}, "type": "log", "tickvals": ticks,
                  "ticktext": [f"{tick:g}" for tick in ticks]},
        "yaxis": {"title": {"text": "ratio to the baseline"}},
        "shapes": [_level(1.0)],
    }  # fmt: skip
    sentence = found.crossover.sentence if found.crossover else ""
    return Figure("crossover", "Load at which speculation stops paying", sentence, data, layout)


def noise_figure(study: StoredStudy, found: Explanation) -> Figure | None:
    """Every launch of the baseline against their usual level."""
    launches = [
        (trial, point.per_block.get(study.metric, []))
        for trial in study.trials
        if trial.state == "baseline" and (point := point_at(trial, study.load))
    ]
    levels = launch_levels([values for _, values in launches])
    if len(levels) < 2 or len(levels) != len(launches):
        return None
    numbers = [float(trial.number) for trial, _ in launches]
    trend = drift(numbers, levels)
    widest = max(LEAST_RANGE, 1.2 * max(abs(level) for level in levels))
    noise = launch_noise([values for _, values in launches], trend)
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "showlegend": False,
            "x": numbers, "y": [math.exp(level) - 1 for level in levels],
            "line": {"color": GREY}, "marker": {"size": 9, "color": BLUE},
            "hovertemplate": "trial %{x}: %{y:.2%}<extra></extra>",
        }
    ]  # fmt: skip
    layout = {
        "xaxis": {"title": {"text": "trial"}},
        "yaxis": {
            "title": {"text": "difference from the usual"},
            "tickformat": "+.1%",
            "range": [-widest, widest],
        },
        "shapes": [_level(0.0)],
    }
    known = "drift is significant" if trend.is_significant else "no significant drift"
    caption = f"Launches of the baseline differ by {units.percent(noise.sd)} (one sd); {known}."
    return Figure("noise", "Drift and noise", caption, data, layout)
