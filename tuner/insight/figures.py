"""Owns which charts a study has."""

from __future__ import annotations

from collections.abc import Callable

from tuner.insight.figure import Figure
from tuner.insight.leverage import Explanation
from tuner.insight.speculation_figures import (
    acceptance_figure,
    crossover_figure,
    cycle_figure,
    levers_figure,
)
from tuner.insight.trial_figures import noise_figure, shape_figure, trials_figure
from tuner.store.stored import StoredStudy


def study_figures(study: StoredStudy, found: Explanation) -> dict[str, Figure]:
    """Every chart that the study has data for, by key."""
    makers: tuple[Callable[[StoredStudy, Explanation], Figure | None], ...] = (
        trials_figure, shape_figure, acceptance_figure, cycle_figure, levers_figure,
        crossover_figure, noise_figure,
    )  # fmt: skip
    made = (make(study, found) for make in makers)
    return {figure.key: figure for figure in made if figure is not None}
