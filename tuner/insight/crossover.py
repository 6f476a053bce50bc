"""Owns at which concurrency speculation stops paying; "not within what was measured" is normal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tuner import units
from tuner.insight.counts import point_at
from tuner.measure.statistics import log_ratios, mean_interval
from tuner.store.record import TrialRecord

METRIC = "output_tokens_per_s"


@dataclass(frozen=True, slots=True)
class LoadRatio:
    """A server's speed at one concurrency as a ratio to the baseline's, with its interval."""

    load: str
    concurrency: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where the ratio falls below 1; `at` is None when that lies outside what was measured."""

    trial: int
    points: tuple[LoadRatio, ...]
    at: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def sentence(self) -> str:
        """What a reader should know."""
        if not self.points:
            return "Crossover: unknown; no load point was measured for both servers."
        if self.at is not None:
            span = f" [{_end(self.low, 'below')}, {_end(self.high, 'above')}]"
            return f"Crossover: speculation stops paying at about concurrency {self.at:.0f}{span}."
        last, first = self.points[-1], self.points[0]
        if last.ratio > 1 and len(self.points) == 1:
            text = f"Crossover: only {last.load} was measured ({units.ratio(last.ratio)} baseline)"
            return f"{text}; add load points to see where speculation stops paying."
        if last.ratio > 1:
            where = "not within what was measured"
            return f"Crossover: {where}; still {units.ratio(last.ratio)} baseline at {last.load}."
        if len(self.points) == 1 or first.ratio <= 1:
            return f"Crossover: it pays at no load that was measured ({_listed(self.points)})."
        return f"Crossover: more than one ({_listed(self.points)})."

    def to_json(self) -> dict[str, Any]:
        """The points and the crossing; null where it was not within what was measured."""
        names = ("load", "concurrency", "ratio", "low", "high")
        return {
            "trial": self.trial,
            "concurrency": self.at,
            "low": self.low,
            "high": self.high,
            "points": [{name: getattr(each, name) for name in names} for each in self.points],
            "text": self.sentence,
        }


def find_crossover(trial: TrialRecord, baselines: Sequence[TrialRecord]) -> Crossover:
    """The crossover of one server against the launches of the baseline."""
    points = sorted(_ratios(trial, baselines), key=lambda each: each.concurrency)
    at = _crossing([(each.concurrency, each.ratio) for each in points])
    if at is None:
        return Crossover(trial.number, tuple(points))
    ends = [
        _crossing([(each.concurrency, getattr(each, end)) for each in points])
        for end in ("low", "high")
    ]
    return Crossover(trial.number, tuple(points), at, *ends)


def concurrency_of(load: str) -> float | None:
    """8 of `c8`; None for a request rate, whose concurrency is not chosen."""
    match = re.fullmatch(r"c(\d+)", load)
    return float(match[1]) if match else None


def _ratios(trial: TrialRecord, baselines: Sequence[TrialRecord]) -> list[LoadRatio]:
    found = []
    for point in trial.load_points:
        concurrency = concurrency_of(point.load)
        others = [other for base in baselines if (other := point_at(base, point.load))]
        if concurrency is None or not others:
            continue
        values = point.per_block.get(METRIC, [])
        logs = [
            log
            for other in others
            for log in log_ratios(values, other.per_block.get(METRIC, []), "maximize")
        ]
        if logs:
            mean, low, high = mean_interval(logs)
            found.append(
                LoadRatio(point.load, concurrency, *(math.exp(v) for v in (mean, low, high)))
            )
    return found


def _crossing(points: Sequence[tuple[float, float]]) -> float | None:
    """First fall through 1, straight between points in log concurrency and log ratio."""
    for (left, above), (right, below) in pairwise(points):
        if above > 1 >= below > 0 and math.isfinite(above):
            part = math.log(above) / math.log(above / below)
            return float(left * (right / left) ** part)
    return None


def _end(value: float | None, word: str) -> str:
    return f"{value:.0f}" if value is not None else f"{word} what was measured"


def _listed(points: Sequence[LoadRatio]) -> str:
    return ", ".join(f"{units.ratio(each.ratio)} at {each.load}" for each in points)
