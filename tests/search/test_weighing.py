"""What launches say of servers, and what of it the model is told."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tuner.model.speculation import MISFIT
from tuner.search.objective import Objective
from tuner.search.weighing import (
    LEAST_NOISE,
    Expected,
    Launched,
    corrected,
    launched,
    levels_of,
    merged,
    noise_of,
    skewness,
    tables_of,
    tokens_of,
    told_to_model,
)
from tuner.store.record import ConfirmationLaunch

BLOCKS = 6


def launches_of(
    speeds: dict[int, float], noise: float, rounds: int = 4, seed: int = 0
) -> list[ConfirmationLaunch]:
    """Gaussian launches of servers (0: the baseline), the noise being that of whole launches."""
    draw = np.random.default_rng(seed)
    return [
        launch_of(trial, round_, [speed * math.exp(draw.normal(0, noise))] * BLOCKS)
        for round_ in range(rounds)
        for trial, speed in speeds.items()
    ]


def launch_of(
    trial: int, round_: int, values: Sequence[float], tokens: Sequence[float] = ()
) -> ConfirmationLaunch:
    counts = {"tokens": list(tokens)} if tokens else {}
    return ConfirmationLaunch(
        round=round_, order=0, trial=trial, digest=f"d{trial}", value=float(np.mean(values)),
        per_block=list(values), block_counts=counts,
    )  # fmt: skip


def counted(
    trial: int, round_: int, seconds: Sequence[float], accepted: Sequence[float] = (20.0, 40.0)
) -> ConfirmationLaunch:
    """A launch with the counters of two blocks of 50 and 100 tokens."""
    tokens = [50.0, 100.0]
    counts = {
        "tokens": tokens, "seconds": list(seconds), "requests": [1.0, 2.0],
        "steps": [30.0, 60.0], "drafted": [40.0, 80.0], "accepted": list(accepted),
    }  # fmt: skip
    values = [count / took for count, took in zip(tokens, seconds, strict=True)]
    return ConfirmationLaunch(
        round=round_, order=0, trial=trial, digest=f"d{trial}", value=float(np.mean(values)),
        per_block=values, block_counts=counts,
    )  # fmt: skip


def test_launches_say_gains_and_their_noise(objective: Objective) -> None:
    found = launched(["d1"], launches_of({0: 100.0, 1: 130.0}, 0.0), objective)
    assert found.gains["d1"] == pytest.approx(math.log(1.3))
    assert found.noise == pytest.approx(0.0, abs=1e-9)
    noisy = launched(["d1"], launches_of({0: 100.0, 1: 130.0}, 0.06, rounds=40), objective)
    assert noisy.noise == pytest.approx(0.06, rel=0.2)


def test_a_contradiction_is_counted_in_single_launches(objective: Objective) -> None:
    few, many = (
        launched(
            ["d1", "d2"], launches_of({0: 100.0, 1: 130.0, 2: 133.0}, 0.05, rounds), objective
        )
        for rounds in (10, 90)
    )
    assert 0 < many.sigmas("d2", "d1") < 1.0
    assert abs(many.sigmas("d2", "d1") - few.sigmas("d2", "d1")) < 1.0
    assert many.sigmas("d1", "d2") == -many.sigmas("d2", "d1")
    quiet = launched(["d1", "d2"], launches_of({0: 100.0, 1: 130.0, 2: 143.0}, 0.0), objective)
    assert quiet.sigmas("d2", "d1") == pytest.approx(math.log(1.1) / LEAST_NOISE / math.sqrt(2))


def test_launches_correct_the_model_by_their_precision() -> None:
    said = {"d1": Expected(0.30, 0.02), "d2": Expected(0.28, 0.02)}
    exact = corrected(said, Launched({"d1": 0.20, "d2": 0.30}, 0.0))
    assert exact["d2"] - exact["d1"] == pytest.approx(0.10 * 4 / 5 - 0.02 / 5)
    even = corrected(said, Launched({"d1": 0.20, "d2": 0.30}, MISFIT))
    assert even["d2"] - even["d1"] == pytest.approx((0.10 - 0.02) / 2)
    assert even["d1"] + even["d2"] == pytest.approx(0.58)
    noisy = corrected(said, Launched({"d1": 0.20, "d2": 0.30}, 0.1))
    assert noisy["d1"] > noisy["d2"]
    assert corrected(said, Launched({"d1": 0.2}, 0.01)) == {"d1": 0.30, "d2": 0.28}


def test_one_launch_each_tells_no_noise(objective: Objective) -> None:
    assert noise_of([np.zeros((1, 3)), np.zeros((1, 3))]) == math.inf
    told = told_to_model(launches_of({0: 1.0, 1: 2.0}, 0.0, rounds=1), objective, is_slowed=False)
    assert told.noise is None
    assert len(told.records) == 2


def test_the_model_is_told_every_launch_with_its_counters(objective: Objective) -> None:
    launches = [counted(0, 0, [1.0, 2.0]), counted(1, 0, [0.5, 1.0]),
                counted(0, 1, [1.0, 2.0]), counted(1, 1, [0.55, 1.1])]  # fmt: skip
    told = told_to_model(launches, objective, is_slowed=False)
    assert [each.state for each in told.records] == ["baseline", "complete"] * 2
    assert [each.vs_baseline for each in told.records] == pytest.approx([1.0, 2.0, 1.0, 2 / 1.1])
    assert told.records[3].load_points[0].block_counts["accepted"] == [20.0, 40.0]
    assert told.records[3].load_points[0].load == objective.load.label
    assert told.noise == pytest.approx(math.log(1.1) / 2, rel=0.01)


def test_disturbed_launches_are_told_as_their_fastest_pass(objective: Objective) -> None:
    launches = [counted(0, 0, [1.0, 2.0]), counted(0, 1, [1.5, 2.0]),
                counted(1, 0, [0.9, 1.0]), counted(1, 1, [0.5, 1.8])]  # fmt: skip
    baseline, server = told_to_model(launches, objective, is_slowed=True).records
    assert baseline.load_points[0].block_counts["seconds"] == [1.0, 2.0]
    assert server.load_points[0].block_counts["seconds"] == [0.5, 1.0]
    assert server.load_points[0].block_counts["tokens"] == [50.0, 100.0]


def test_launches_that_drafted_differently_are_not_merged() -> None:
    lucky = counted(1, 1, [0.4, 0.8], accepted=[30.0, 60.0])
    assert merged([counted(1, 0, [0.5, 1.0]), lucky]) == [counted(1, 0, [0.5, 1.0]), lucky]
    uncounted = launches_of({0: 1.0}, 0.1, rounds=3)
    assert merged(uncounted) == uncounted
    alike = merged([counted(1, 0, [0.5, 1.0]), counted(2, 0, [0.5, 1.0])])
    assert [each.trial for each in alike] == [1, 2]


def test_a_moving_load_and_failures_tell_the_model_nothing(objective: Objective) -> None:
    moving = counted(1, 0, [0.5, 1.0]).model_copy(update={"loads": ["c1", "c4"]})
    failed = counted(1, 1, [0.5, 1.0]).model_copy(update={"failure": "died"})
    told = told_to_model([counted(0, 0, [1.0, 2.0]), moving, failed], objective, is_slowed=True)
    assert [each.state for each in told.records] == ["baseline"]
    assert told_to_model([moving], objective, is_slowed=True).records == ()


def test_where_disturbance_only_slows_the_fastest_pass_is_the_level() -> None:
    draw = np.random.default_rng(1)
    slow = [-draw.exponential(0.1, (8, BLOCKS)) for _ in range(3)]
    assert skewness(slow) < -0.5
    levels = levels_of(slow)
    assert all(-0.04 < level < 0.0 for level in levels)
    even = [draw.normal(0, 0.1, (8, BLOCKS)) for _ in range(3)]
    assert abs(skewness(even)) < 0.3
    assert all(abs(level) < 0.06 for level in levels_of(even))


def test_few_values_tell_no_skewness() -> None:
    assert skewness([np.array([[0.0, 0.0], [-5.0, 0.0]])]) == 0.0
    assert skewness([np.zeros((9, 9))]) == 0.0


def test_blocks_weigh_by_their_tokens(objective: Objective) -> None:
    tokens = [10.0, 990.0]
    launches = [
        launch_of(trial, round_, values, tokens)
        for round_ in range(3)
        for trial, values in ((0, [100.0, 100.0]), (1, [400.0, 120.0]))
    ]
    found = launched(["d1"], launches, objective)
    total = 1000.0 / (10 / 400 + 990 / 120) / 100.0
    assert found.gains["d1"] == pytest.approx(math.log(total))
    uncounted = [each.model_copy(update={"block_counts": {}}) for each in launches]
    plain = launched(["d1"], uncounted, objective)
    assert plain.gains["d1"] == pytest.approx(math.log(math.sqrt(4.0 * 1.2)))


def test_tokens_that_were_not_counted_everywhere_are_not_used() -> None:
    counted = [launch_of(0, 0, [1.0, 2.0], [5.0, 6.0]), launch_of(1, 0, [1.0, 2.0], [5.0, 8.0])]
    tokens = tokens_of(counted)
    assert tokens is not None
    assert tokens.tolist() == [5.0, 7.0]
    assert tokens_of([*counted, launch_of(2, 0, [1.0, 2.0])]) is None
    assert tokens_of([launch_of(0, 0, [1.0], [0.0])]) is None


def test_failed_launches_and_strangers_are_left_out() -> None:
    failed = launch_of(1, 1, [1.0, 1.0]).model_copy(update={"failure": "died"})
    launches = [launch_of(0, 0, [1.0, 1.0]), launch_of(1, 0, [2.0, 2.0]), failed]
    tables = tables_of(["d1", "d9"], [*launches, launch_of(7, 0, [3.0, 3.0])], "maximize")
    assert set(tables) == {"", "d1"}
    assert tables["d1"].shape == (1, 2)
    down = tables_of(["d1"], launches, "minimize")
    assert down["d1"][0, 0] == pytest.approx(-math.log(2.0))


def test_without_a_baseline_nothing_is_said(objective: Objective) -> None:
    launches = [each for each in launches_of({0: 1.0, 1: 2.0}, 0.01) if each.trial]
    assert launched(["d1"], launches, objective).gains == {}
    assert told_to_model(launches, objective, is_slowed=False).records == ()
