"""The verdict: from launches of the confirmation alone, and the baseline is a normal answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuner.config.study import ObjectiveConfig
from tuner.measure.noise import LaunchNoise
from tuner.measure.records import LoadPoint
from tuner.search.objective import Objective, build_objective
from tuner.search.recommend import Finalist, decide
from tuner.store.record import ConfirmationLaunch

Launch = Callable[..., ConfirmationLaunch]
ONE, TWO = Finalist(1, "d1", complexity=8), Finalist(2, "d2", complexity=4)
NOISE = [1.00, 1.02, 0.99, 1.01]


def rounds(launch: Launch, speeds: dict[int, float]) -> list[ConfirmationLaunch]:
    """Four rounds; every server of a round shares the round's drift, and has its own wobble."""
    return [
        launch(r, trial, speed * NOISE[r] * (1.0 + 0.002 * ((trial + r) % 3)))
        for r in range(4)
        for trial, speed in speeds.items()
    ]


def test_a_clear_winner_has_an_interval_that_excludes_one(objective, launch: Launch) -> None:
    verdict = decide(objective, [ONE], rounds(launch, {0: 100.0, 1: 138.0}), {"d1": "match"})
    assert verdict.winner is not None
    assert verdict.winner.ratio == pytest.approx(1.38, rel=0.01)
    assert 1.3 < verdict.winner.low < verdict.winner.ratio < verdict.winner.high < 1.45
    assert verdict.winner.launches == 4


def test_equal_servers_keep_the_baseline_and_say_why(objective, launch: Launch) -> None:
    verdict = decide(objective, [ONE], rounds(launch, {0: 100.0, 1: 100.0}), {"d1": "match"})
    assert verdict.winner is None
    assert verdict.reasons[0] == "No server beat it by more than the noise."
    assert "Best finalist: trial 1, 1.00x" in verdict.reasons[1]
    assert verdict.smallest_detectable is not None
    assert 1.0 < verdict.smallest_detectable < 1.05


def test_a_slower_server_is_never_used(objective, launch: Launch) -> None:
    verdict = decide(objective, [ONE], rounds(launch, {0: 100.0, 1: 70.0}), {"d1": "match"})
    assert verdict.winner is None
    assert verdict.finalists[0].high < 1.0


def test_among_equals_the_simpler_server_is_preferred(objective, launch: Launch) -> None:
    speeds = {0: 100.0, 1: 138.1, 2: 138.0}
    verdict = decide(objective, [ONE, TWO], rounds(launch, speeds), {})
    assert verdict.winner is not None
    assert verdict.winner.trial == 2
    assert "differ by less than the noise" in verdict.reasons[0]


def test_a_truly_better_server_wins_although_it_is_not_the_simplest(
    objective, launch: Launch
) -> None:
    speeds = {0: 100.0, 1: 150.0, 2: 130.0}
    verdict = decide(objective, [ONE, TWO], rounds(launch, speeds), {})
    assert verdict.winner is not None
    assert verdict.winner.trial == 1


def test_changed_answers_cannot_be_recommended(objective, launch: Launch) -> None:
    launches = rounds(launch, {0: 100.0, 1: 150.0})
    verdict = decide(objective, [ONE], launches, {"d1": "output_mismatch: 3 of 48 match"})
    assert verdict.winner is None
    assert any("changes the answers" in reason for reason in verdict.reasons)


def test_constraints_are_decided_on_the_confirmed_numbers(launch: Launch) -> None:
    config = ObjectiveConfig(
        maximize="output_tokens_per_s", constraints=["ttft_p95_ms <= 1.10 * baseline"]
    )
    objective = build_objective(config, [LoadPoint(concurrency=1)])
    launches = rounds(launch, {0: 100.0, 1: 150.0})
    slow = [
        each.model_copy(update={"metrics": {**each.metrics, "ttft_p95_ms": 140.0}})
        if each.trial == 1
        else each
        for each in launches
    ]
    verdict = decide(objective, [ONE], slow, {})
    assert verdict.winner is None
    assert "Trial 1 breaks an outcome constraint." in verdict.reasons


def test_a_failed_launch_costs_its_round_only(objective: Objective, launch: Launch) -> None:
    launches = rounds(launch, {0: 100.0, 1: 138.0})
    launches[1] = launches[1].model_copy(update={"failure": "died", "value": None})
    verdict = decide(objective, [ONE], launches, {})
    assert verdict.winner is not None
    assert verdict.winner.launches == 3


def test_one_round_proves_nothing(objective: Objective, launch: Launch) -> None:
    verdict = decide(objective, [ONE], [launch(0, 0, 100.0), launch(0, 1, 200.0)], {})
    assert verdict.winner is None
    assert verdict.reasons == ("No finalist could be confirmed.",)


def test_noise_known_from_the_search_sharpens_the_interval(objective, launch: Launch) -> None:
    speeds = [(0, 100.0, 121.0), (1, 103.0, 118.0)]
    launches = [launch(r, t, speed) for r, *both in speeds for t, speed in enumerate(both)]
    alone = decide(objective, [ONE], launches, {}).finalists[0]
    helped = decide(objective, [ONE], launches, {}, LaunchNoise(0.005, 8)).finalists[0]
    assert helped.ratio == pytest.approx(alone.ratio)
    assert helped.high - helped.low < (alone.high - alone.low) / 2
