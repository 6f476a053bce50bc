"""The verdict: from launches of the confirmation alone, and the baseline is a normal answer."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tuner.config.study import ObjectiveConfig
from tuner.measure.noise import LaunchNoise
from tuner.measure.records import LoadPoint
from tuner.measure.statistics import family_level, t_quantile
from tuner.search.choosing import difference_of
from tuner.search.objective import Objective, build_objective
from tuner.search.recommend import (
    UNKNOWN_NOISE,
    Finalist,
    decide,
    judge_finalists,
    keep_reasons,
    median_metrics,
    paired_rounds,
)
from tuner.store.record import ConfirmationLaunch, FinalistRecord

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


def test_a_faster_server_that_is_barred_is_named_beside_the_winner(
    objective, launch: Launch
) -> None:
    """A reader who saw it on top of the table must know why it is not recommended."""
    launches = rounds(launch, {0: 100.0, 1: 130.0, 2: 200.0})
    verdict = decide(objective, [ONE, TWO], launches, {"d2": "0 of 48 match"})
    assert verdict.winner is not None
    assert verdict.winner.trial == 1
    assert "Trial 2 changes the answers (output_mismatch): 0 of 48 match." in verdict.reasons
    slower = decide(objective, [ONE, TWO], launches, {"d1": "0 of 48 match"})
    assert slower.winner is not None
    assert slower.winner.trial == 2
    assert not any("changes the answers" in reason for reason in slower.reasons)


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


# ---- the parts, each against a calculation of its own ----------------------------------------


def test_finalists_are_listed_best_first_whatever_their_order(objective, launch: Launch) -> None:
    speeds = {0: 100.0, 1: 120.0, 2: 150.0, 3: 90.0}
    finalists = [Finalist(n, f"d{n}", complexity=n) for n in (3, 1, 2)]
    judged = judge_finalists(objective, finalists, rounds(launch, speeds), {}, UNKNOWN_NOISE)
    assert [record.trial for record in judged] == [2, 1, 3]
    assert [record.fidelity for record in judged] == ["not checked"] * 3
    verdict = decide(objective, finalists, rounds(launch, speeds), {})
    assert [record.trial for record in verdict.finalists] == [2, 1, 3]


def test_a_finalists_value_is_the_mean_of_its_launches(objective, launch: Launch) -> None:
    launches = rounds(launch, {0: 100.0, 1: 130.0})
    launches[3] = launches[3].model_copy(update={"value": None})
    (record,) = judge_finalists(objective, [ONE], launches, {}, UNKNOWN_NOISE)
    known = [each.value for each in launches if each.trial == 1 and each.value is not None]
    assert len(known) == 3
    assert record.value == pytest.approx(float(np.mean(known)))
    unknown = [each.model_copy(update={"value": None}) for each in launches]
    (record,) = judge_finalists(objective, [ONE], unknown, {}, UNKNOWN_NOISE)
    assert record.value is None


def test_the_interval_is_students_over_rounds(objective, launch: Launch) -> None:
    """One block a launch, one finalist: the paired t interval around the median of the pairwise
    means (Hodges-Lehmann), whose variance is 10 % above the mean's."""
    base, mine = (100.0, 104.0, 98.0, 101.0), (131.0, 135.0, 129.0, 128.0)
    launches = [
        launch(r, trial, value).model_copy(update={"per_block": [value]})
        for trial, values in enumerate((base, mine))
        for r, value in enumerate(values)
    ]
    (record,) = judge_finalists(objective, [ONE], launches, {}, UNKNOWN_NOISE)
    logs = np.log(np.array(mine) / np.array(base))
    center = float(np.median([(a + b) / 2 for i, a in enumerate(logs) for b in logs[i:]]))
    half = t_quantile(0.975, 3) * math.sqrt(1.1 * logs.var(ddof=1) / 4)
    assert record.ratio == pytest.approx(math.exp(center))
    assert record.low == pytest.approx(math.exp(center - half))
    assert record.high == pytest.approx(math.exp(center + half))


def test_intervals_of_several_finalists_are_wider(objective, launch: Launch) -> None:
    assert family_level(0.95, 3) > family_level(0.95, 2) > family_level(0.95, 1) == 0.95


def test_only_rounds_that_both_finished_are_paired(launch: Launch) -> None:
    launches = rounds(launch, {0: 100.0, 1: 130.0, 2: 140.0})
    died = {(1, 0), (2, 1)}  # round and trial
    launches = [
        each.model_copy(update={"failure": "died"}) if (each.round, each.trial) in died else each
        for each in launches
        if (each.round, each.trial) != (3, 1)
    ]
    pairs = paired_rounds(ONE, launches)
    assert [(server.trial, base.trial) for server, base in pairs] == [(1, 0)]
    assert [server.round for server, _ in pairs] == [0]
    assert [server.round for server, _ in paired_rounds(TWO, launches)] == [0, 2, 3]


def test_another_server_under_the_same_trial_number_is_not_paired(launch: Launch) -> None:
    launches = [launch(0, 0, 100.0), launch(0, 1, 130.0, digest="another")]
    assert paired_rounds(ONE, launches) == []


def test_medians_use_the_launches_that_have_the_metric(launch: Launch) -> None:
    launches = [
        launch(0, 0, 1.0, metrics={"ttft_p95_ms": 10.0, "tpot_p50_ms": 3.0}),
        launch(1, 0, 1.0, metrics={"ttft_p95_ms": 90.0}),
        launch(2, 0, 1.0, metrics={"ttft_p95_ms": 12.0, "tpot_p50_ms": 5.0}),
    ]
    assert median_metrics(launches) == {"ttft_p95_ms": 12.0, "tpot_p50_ms": 4.0}
    assert median_metrics([]) == {}


def record(trial: int, low: float, ratio: float, high: float, **more: object) -> FinalistRecord:
    fields = {"trial": trial, "digest": f"d{trial}", "launches": 4, **more}
    return FinalistRecord(low=low, ratio=ratio, high=high, **fields)


@pytest.mark.parametrize(
    ("judged", "noise", "reasons"),
    [
        ([], 1.02, ["No finalist could be confirmed."]),
        (
            [record(4, 0.99, 1.01, 1.03)], 1.02,
            [
                "No server beat it by more than the noise.",
                "Best finalist: trial 4, 1.01x [0.99, 1.03].",
                "Smallest gain this study could have seen: 1.02x.",
            ],
        ),
        (
            [record(4, 1.0, 1.01, 1.03)], None,
            [
                "No server beat it by more than the noise.",
                "Best finalist: trial 4, 1.01x [1.00, 1.03].",
            ],
        ),
        (
            [
                record(4, 1.2, 1.3, 1.4, constraints_met=False),
                record(5, 1.1, 1.2, 1.3, fidelity="p"),
            ],
            None,
            [
                "Best finalist: trial 4, 1.30x [1.20, 1.40].",
                "Trial 4 breaks an outcome constraint.",
                "Trial 5 changes the answers (output_mismatch): p.",
            ],
        ),
    ],
)  # fmt: skip
def test_why_the_baseline_is_kept(
    judged: list[FinalistRecord], noise: float | None, reasons: list[str]
) -> None:
    assert keep_reasons(judged, noise) == reasons


def test_what_could_have_been_seen_grows_with_noise_and_shrinks_with_rounds(
    objective, launch: Launch
) -> None:
    def least(wobble: float, count: int, finalists: list[Finalist]) -> float:
        draw = np.random.default_rng(3)
        launches = [
            launch(r, trial, 100.0 * math.exp(wobble * draw.standard_normal()))
            for r in range(count)
            for trial in (0, 1, 2)
        ]
        found = decide(objective, finalists, launches, {}).smallest_detectable
        assert found is not None
        return found

    assert 1.0 < least(0.005, 4, [ONE]) < least(0.02, 4, [ONE]) < least(0.08, 4, [ONE])
    assert least(0.02, 12, [ONE]) < least(0.02, 4, [ONE])
    assert least(0.02, 8, [ONE]) < least(0.02, 8, [ONE, TWO]) * 1.05


def test_two_that_never_finished_the_same_round_are_not_called_equal(
    objective, launch: Launch
) -> None:
    """The simpler one is far slower; that their launches failed in turns must not hide it."""
    launches = [
        each
        for each in rounds(launch, {0: 100.0, 1: 180.0, 2: 120.0})
        if each.trial == 0 or (each.trial == 1) == (each.round < 2)
    ]
    helped = LaunchNoise(0.004, 12)
    verdict = decide(objective, [ONE, TWO], launches, {}, helped)
    assert verdict.winner is not None
    assert verdict.winner.trial == 1
    one, two = (r for r in verdict.finalists)
    assert difference_of(objective, one, two, launches) == (math.inf, 0.0)


def test_the_difference_of_two_finalists_is_paired_by_round(objective, launch: Launch) -> None:
    """A drift that both share is no difference: 10 % between rounds, 2 % between servers."""
    launches = [
        launch(r, trial, speed * (1.0 + 0.1 * r))
        for r in range(4)
        for trial, speed in ((0, 100.0), (1, 122.4), (2, 120.0))
    ]
    one, two = record(1, 1.0, 1.0, 1.0), record(2, 1.0, 1.0, 1.0)
    mean, half = difference_of(objective, one, two, launches)
    assert mean == pytest.approx(math.log(1.02))
    assert half == pytest.approx(0.0, abs=1e-9)
