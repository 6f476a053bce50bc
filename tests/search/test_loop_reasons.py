"""Why nothing was confirmed, in the words of the search."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tuner.search.history import History
from tuner.search.loop import why_nothing
from tuner.search.stopping import Stop


def session(history: History) -> Any:
    return SimpleNamespace(history=history)


def test_the_searchs_best_is_named(objective, trial) -> None:
    history = History(objective, [trial(0, "baseline"), trial(3, vs_baseline=0.914)])
    assert why_nothing(session(history), Stop("the budget of 2 launches is used up")) == [
        "Nothing was worth a confirmation; the search's best: trial 3, 0.91x baseline.",
        "The search ended: the budget of 2 launches is used up.",
    ]


def test_a_finding_brings_its_hint(objective, trial) -> None:
    history = History(objective, [trial(0, "baseline")])
    stop = Stop("never accepted: trial 1", "Run `tuner draft inspect`.")
    assert why_nothing(session(history), stop) == [
        "The search ended: never accepted: trial 1.",
        "Run `tuner draft inspect`.",
    ]
