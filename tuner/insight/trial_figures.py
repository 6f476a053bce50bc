"""Owns the charts of trials: over time, by the shape of the draft, launches of the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from tuner import units
from tuner.insight.counts import DEPTH, WIDTH, flag_number
from tuner.insight.figure import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    STATE_COLOURS,
    Figure,
    described,
    level,
)  # fmt: skip
from tuner.insight.leverage import Explanation
from tuner.store.baselines import sentinels_of
from tuner.store.record import TrialRecord
from tuner.store.stored import StoredStudy

LEAST_RANGE = 0.02
"""Differences between launches are drawn to a scale on which 2 % is large."""


def trials_figure(study: StoredStudy, found: Explanation) -> Figure | None:
    """Every measured trial in order, with the interval of its blocks."""
    measured = [t for t in study.trials if t.value is not None]
    if not measured:
        return None
    data = [_trial_points(state, measured) for state in STATE_COLOURS]
    shapes = []
    if study.baseline is not None and study.baseline.value is not None:
        shapes.append(level(study.baseline.value))
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
        "shapes": [level(1.0)],
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


def noise_figure(study: StoredStudy, found: Explanation) -> Figure | None:
    """Every launch of the baseline against their usual level."""
    found_again = sentinels_of(study.trials, study.metric, study.load)
    numbers = [float(trial.number) for trial in study.trials if trial.state == "baseline"]
    levels = found_again.levels
    if len(levels) < 2 or len(levels) != len(numbers):
        return None
    widest = max(LEAST_RANGE, 1.2 * max(abs(each) for each in levels))
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "showlegend": False,
            "x": numbers, "y": [math.exp(each) - 1 for each in levels],
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
        "shapes": [level(0.0)],
    }
    known = "drift is significant" if found_again.is_drifting else "no significant drift"
    sd = units.percent(found_again.noise.sd)
    caption = f"Launches of the baseline differ by {sd} (one sd); {known}."
    return Figure("noise", "Drift and noise", caption, data, layout)
