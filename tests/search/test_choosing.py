"""What decides among servers that all beat the baseline, and that the record says so."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tuner.search.objective import Objective
from tuner.search.recommend import Finalist, Verdict, decide
from tuner.search.weighing import Expected
from tuner.store.record import ConfirmationLaunch

Launch = Callable[..., ConfirmationLaunch]
ONE, TWO = Finalist(1, "d1", complexity=8), Finalist(2, "d2", complexity=9)
WOBBLE = (1.0, 1.06, 0.95, 1.03)


def verdict_of(
    objective: Objective,
    launch: Launch,
    speeds: dict[int, float],
    expected: dict[str, Expected] | None = None,
    wobble: tuple[float, ...] = WOBBLE,
) -> Verdict:
    """Two finalists that vary on their own by a few percent."""
    launches = [
        launch(r, trial, speed * wobble[(r + trial) % 4])
        for r in range(4)
        for trial, speed in speeds.items()
    ]
    return decide(objective, [ONE, TWO], launches, {}, expected=expected)


def said(one: float, two: float, sd: float = 0.01) -> dict[str, Expected]:
    return {"d1": Expected(math.log(one), sd), "d2": Expected(math.log(two), sd)}


def test_launches_decide_where_they_separate(objective: Objective, launch: Launch) -> None:
    found = verdict_of(objective, launch, {0: 100.0, 1: 150.0, 2: 200.0}, said(1.6, 1.5))
    assert found.winner is not None
    assert (found.winner.trial, found.decided_by, found.reasons) == (2, "launches", ())


def test_the_model_decides_where_they_do_not(objective: Objective, launch: Launch) -> None:
    speeds = {0: 100.0, 1: 151.0, 2: 150.0}
    plain = verdict_of(objective, launch, speeds)
    assert plain.winner is not None
    assert (plain.winner.trial, plain.decided_by) == (1, "launches")
    found = verdict_of(objective, launch, speeds, said(1.45, 1.52))
    assert found.winner is not None
    assert (found.winner.trial, found.decided_by) == (2, "model")
    assert found.reasons[0].startswith("Launches cannot tell trials 1 and 2 apart (0.7% < ")
    assert "the model fitted to all launches decides" in found.reasons[0]
    assert found.reasons[0].endswith("for trial 2 (1.52x against 1.45x).")


def test_the_interval_rests_on_launches_alone(objective: Objective, launch: Launch) -> None:
    speeds = {0: 100.0, 1: 151.0, 2: 150.0}
    plain = verdict_of(objective, launch, speeds)
    found = verdict_of(objective, launch, speeds, said(1.45, 1.52))
    intervals = {each.trial: (each.ratio, each.low, each.high) for each in plain.finalists}
    assert found.winner is not None
    assert (found.winner.ratio, found.winner.low, found.winner.high) == intervals[2]


def test_the_model_cannot_make_a_server_usable(objective: Objective, launch: Launch) -> None:
    found = verdict_of(objective, launch, {0: 100.0, 1: 100.0, 2: 90.0}, said(1.5, 1.4))
    assert found.winner is None
    assert found.decided_by == ""


def test_a_model_that_agrees_with_the_launches_shares_the_decision(
    objective: Objective, launch: Launch
) -> None:
    found = verdict_of(objective, launch, {0: 100.0, 1: 150.0, 2: 152.0}, said(1.45, 1.52))
    assert found.winner is not None
    assert (found.winner.trial, found.decided_by) == (2, "launches and model")


@pytest.mark.parametrize(("gap", "winner"), [(1.10, 1), (1.40, 2)])
def test_only_a_gross_contradiction_overrules_the_model(
    objective: Objective, launch: Launch, gap: float, winner: int
) -> None:
    speeds = {0: 100.0, 1: 150.0, 2: 150.0 * gap}
    found = verdict_of(objective, launch, speeds, said(1.6, 1.5))
    assert found.winner is not None
    assert found.winner.trial == winner


def test_a_model_that_does_not_know_every_finalist_is_not_asked(
    objective: Objective, launch: Launch
) -> None:
    known = {"d2": Expected(math.log(1.6), 0.01)}
    found = verdict_of(objective, launch, {0: 100.0, 1: 151.0, 2: 150.0}, known)
    assert found.winner is not None
    assert (found.winner.trial, found.decided_by) == (1, "launches")


@pytest.mark.parametrize(
    ("gap", "winner", "by"), [(0.001, 1, "simplicity"), (0.02, 2, "launches and model")]
)
def test_simplicity_decides_only_between_equals(
    objective: Objective, launch: Launch, gap: float, winner: int, by: str
) -> None:
    speeds = {0: 100.0, 1: 150.0, 2: 150.0 * math.exp(gap)}
    found = verdict_of(objective, launch, speeds, said(1.5, 1.5 * math.exp(gap), sd=0.002))
    assert found.winner is not None
    assert (found.winner.trial, found.decided_by) == (winner, by)
