"""Owns the charts of speculation: acceptance, the cycle, levers, the crossover."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from tuner.insight.curve import Position, curve_of
from tuner.insight.figure import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    STATE_COLOURS,
    Figure,
    described,
    level,
)  # fmt: skip
from tuner.insight.leverage import Explanation
from tuner.store.record import TrialRecord
from tuner.store.stored import StoredStudy

SHOWN_CURVES = 6


def acceptance_figure(study: StoredStudy, found: Explanation) -> Figure | None:
    """Share of drafts accepted up to each position: the explained trial and the deepest others."""
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


def _curve_line(
    trial: TrialRecord, positions: Sequence[Position], *, is_first: bool
) -> dict[str, Any]:
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
        "shapes": [level(1.0, "x")],
    }
    caption = "Green was measured, blue is predicted by the model of the cycle."
    return Figure("levers", "Levers", caption, data, layout)


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
        "shapes": [level(1.0)],
    }  # fmt: skip
    sentence = found.crossover.sentence if found.crossover else ""
    return Figure("crossover", "Load at which speculation stops paying", sentence, data, layout)
