"""Launches and model as one number: each weighs by its precision, and neither is hidden."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tuner.search.objective import Objective
from tuner.search.weighing import (
    Expected,
    levels_of,
    model_variance,
    skewness,
    tables_of,
    tokens_of,
    weigh,
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


def test_without_a_model_launches_alone_count(objective: Objective) -> None:
    found = weigh(["d1"], launches_of({0: 100.0, 1: 130.0}, 0.0), objective)
    assert found["d1"].gain == pytest.approx(math.log(1.3))
    assert found["d1"].launched == found["d1"].gain
    assert found["d1"].model_share == 0.0


def test_a_model_that_does_not_know_every_finalist_is_not_asked(objective: Objective) -> None:
    launches = launches_of({0: 100.0, 1: 130.0, 2: 131.0}, 0.01)
    found = weigh(["d1", "d2"], launches, objective, {"d1": Expected(0.5, 0.01)})
    assert [each.model_share for each in found.values()] == [0.0, 0.0]


def test_a_sure_model_decides_where_launches_are_noisy(objective: Objective) -> None:
    launches = launches_of({0: 100.0, 1: 130.0, 2: 133.0}, 0.08)
    said = {"d1": Expected(math.log(1.30), 0.01), "d2": Expected(math.log(1.33), 0.01)}
    found = weigh(["d1", "d2"], launches, objective, said)
    assert 0.5 < found["d1"].model_share < 1.0
    assert found["d2"].gain > found["d1"].gain
    gap = found["d2"].gain - found["d1"].gain
    assert gap == pytest.approx(math.log(1.33 / 1.30), abs=0.03)


def test_exact_launches_overrule_the_model(objective: Objective) -> None:
    launches = launches_of({0: 100.0, 1: 130.0, 2: 133.0}, 0.001)
    said = {"d1": Expected(math.log(1.4), 0.03), "d2": Expected(math.log(1.3), 0.03)}
    found = weigh(["d1", "d2"], launches, objective, said)
    assert found["d2"].model_share < 0.05
    assert found["d2"].gain > found["d1"].gain


def test_the_right_server_is_chosen_more_often_with_the_model(objective: Objective) -> None:
    speeds, alone, together = {0: 100.0, 1: 130.0, 2: 133.0, 3: 129.0}, 0, 0
    draw = np.random.default_rng(3)
    names = ["d1", "d2", "d3"]
    for seed in range(60):
        launches = launches_of(speeds, 0.06, seed=seed)
        said = {
            f"d{trial}": Expected(math.log(speeds[trial] / 100) + draw.normal(0, 0.012), 0.012)
            for trial in (1, 2, 3)
        }
        alone += _best(weigh(names, launches, objective)) == "d2"
        together += _best(weigh(names, launches, objective, said)) == "d2"
    assert together > alone + 5
    assert together > 40


def _best(found: dict) -> str:  # type: ignore[type-arg]
    return str(max(found, key=lambda name: found[name].gain))


@pytest.mark.parametrize(("gaps", "low", "high"), [
    ([0.0, 0.0], 0.0004, 0.0004),
    ([-0.1, 0.1], 0.001, 0.003),
    ([0.1, 0.1, 0.1], 0.0004, 0.0004),
])  # fmt: skip
def test_the_models_doubt_grows_with_what_launches_show(
    gaps: list[float], low: float, high: float
) -> None:
    found = model_variance(np.array(gaps), [0.02] * len(gaps), 0.0001)
    assert low - 1e-9 <= found <= high + 1e-9


def test_where_disturbance_only_slows_the_fastest_pass_is_the_level() -> None:
    draw = np.random.default_rng(1)
    slow = [-draw.exponential(0.1, (8, BLOCKS)) for _ in range(3)]
    assert skewness(slow) < -0.5
    levels, variance = levels_of(slow)
    assert all(-0.04 < level < 0.0 for level in levels)
    assert variance < 0.001
    even = [draw.normal(0, 0.1, (8, BLOCKS)) for _ in range(3)]
    assert abs(skewness(even)) < 0.3
    assert all(abs(level) < 0.06 for level in levels_of(even)[0])


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
    found = weigh(["d1"], launches, objective)
    total = 1000.0 / (10 / 400 + 990 / 120) / 100.0
    assert found["d1"].gain == pytest.approx(math.log(total))
    plain = weigh(["d1"], [e.model_copy(update={"block_counts": {}}) for e in launches], objective)
    assert plain["d1"].gain == pytest.approx(math.log(math.sqrt(4.0 * 1.2)))


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


def test_without_a_baseline_nothing_is_weighed(objective: Objective) -> None:
    launches = [each for each in launches_of({0: 1.0, 1: 2.0}, 0.01) if each.trial]
    assert weigh(["d1"], launches, objective) == {}
