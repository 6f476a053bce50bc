"""Two trials side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tuner.cli.compare import Comparison, compare_trials, comparison_document, comparison_lines
from tuner.errors import UsageError
from tuner.store.record import ConfirmationLaunch, TrialRecord
from tuner.store.stored import StoredStudy

Golden = Callable[[str, str], None]


@pytest.fixture
def study(trials: list[TrialRecord], document: dict[str, Any]) -> StoredStudy:
    return StoredStudy("kimi-k2.5", trials, None, [], document)


def launch(
    round_: int, trial: int, values: list[float], failure: str | None = None
) -> ConfirmationLaunch:
    return ConfirmationLaunch(
        round=round_,
        order=round_ * 2 + trial,
        trial=trial,
        digest=f"{trial:016x}",
        value=sum(values) / len(values),
        per_block=values,
        failure=failure,
    )


def test_blocks_of_one_launch_each(study: StoredStudy) -> None:
    found = compare_trials(study, 5, 0)
    assert found.verdict == "better"
    assert found.basis == "blocks"
    assert found.pairs == 3
    assert found.ratio == pytest.approx(2661 / 1912, rel=0.005)
    assert found.low < found.ratio < found.high


@pytest.mark.parametrize(
    ("name", "ratio", "low", "high", "basis", "pairs"),
    [
        ("blocks", 1.392, 1.364, 1.421, "blocks", 3),
        ("rounds", 1.001, 0.983, 1.019, "launches", 4),
        ("worse", 0.901, 0.883, 0.919, "launches", 4),
    ],
)
def test_the_sentences(
    study: StoredStudy,
    golden: Golden,
    name: str,
    ratio: float,
    low: float,
    high: float,
    basis: str,
    pairs: int,
) -> None:
    found = Comparison(study.trial(5), study.trial(0), ratio, low, high, basis, pairs)
    golden(f"compare-{name}", "\n".join(comparison_lines(study, found)) + "\n")


def test_the_order_decides_the_direction(study: StoredStudy) -> None:
    found = compare_trials(study, 0, 5)
    assert found.verdict == "worse"
    assert found.ratio == pytest.approx(1912 / 2661, rel=0.005)


def test_smaller_is_better_when_the_objective_is_minimised(
    trials: list[TrialRecord],
) -> None:
    document = {"fields": {"objective": "minimize output_tokens_per_s", "objective.at": "c1"}}
    found = compare_trials(StoredStudy("s", trials, None, [], document), 0, 5)
    assert found.verdict == "better"


def test_confirmation_rounds_count_more_than_blocks(study: StoredStudy) -> None:
    for round_, factor in enumerate((1.00, 1.02, 0.99, 1.01), start=1):
        study.confirmations.append(launch(round_, 0, [100.0 * factor, 110.0 * factor]))
        study.confirmations.append(launch(round_, 5, [101.0, 109.0]))
    study.confirmations.append(launch(5, 5, [900.0, 900.0], failure="died"))
    found = compare_trials(study, 5, 0)
    assert found.basis == "launches"
    assert found.pairs == 4
    assert found.verdict == "no difference found"


def test_rounds_of_different_campaigns_are_not_paired(study: StoredStudy) -> None:
    for round_ in (1, 2):
        study.confirmations.append(
            launch(round_, 0, [100.0, 110.0]).model_copy(update={"campaign": "first"})
        )
        study.confirmations.append(
            launch(round_, 5, [130.0, 140.0]).model_copy(update={"campaign": "second"})
        )
    assert compare_trials(study, 5, 0).basis == "blocks"


def test_the_document(study: StoredStudy) -> None:
    document = comparison_document(study, compare_trials(study, 5, 1))
    assert document["verdict"] == "better"
    assert {"ratio", "low", "high", "a", "b", "metric", "load", "basis"} <= set(document)


def test_trials_without_common_blocks_are_refused(study: StoredStudy) -> None:
    with pytest.raises(UsageError, match="must share at least two measured blocks, got 0"):
        compare_trials(study, 3, 0)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.001, 1.2, "better"),
        (1.0, 1.2, "no difference found"),
        (0.9, 1.1, "no difference found"),
        (0.9, 1.0, "no difference found"),
        (0.8, 0.999, "worse"),
    ],
)
def test_only_an_interval_that_excludes_one_decides(
    study: StoredStudy, low: float, high: float, verdict: str
) -> None:
    found = Comparison(study.trial(5), study.trial(0), 1.0, low, high, "blocks", 3)
    assert found.verdict == verdict


def test_the_interval_over_blocks_is_students(study: StoredStudy) -> None:
    """An independent calculation of the paired t interval of three log ratios."""
    a, b = (study.trial(n).load_points[0].per_block["output_tokens_per_s"] for n in (5, 0))
    logs = [math.log(x / y) for x, y in zip(a, b, strict=True)]
    mean = statistics.fmean(logs)
    half = 4.302652729911275 * statistics.stdev(logs) / math.sqrt(3)  # t, 2 degrees of freedom
    found = compare_trials(study, 5, 0)
    assert math.log(found.ratio) == pytest.approx(mean)
    assert math.log(found.low) == pytest.approx(mean - half)
    assert math.log(found.high) == pytest.approx(mean + half)


@pytest.mark.parametrize(("blocks", "is_enough"), [(1, False), (2, True)])
def test_two_common_blocks_are_the_least(study: StoredStudy, blocks: int, is_enough: bool) -> None:
    point = study.trial(5).load_points[0]
    cut = {name: values[:blocks] for name, values in point.per_block.items()}
    short = point.model_copy(update={"per_block": cut})
    study.trials[5] = study.trials[5].model_copy(update={"load_points": [short]})
    if is_enough:
        assert compare_trials(study, 5, 0).pairs == 2
        return
    with pytest.raises(UsageError, match="at least two measured blocks, got 1"):
        compare_trials(study, 5, 0)


def test_one_round_is_no_confirmation_and_two_are(study: StoredStudy) -> None:
    study.confirmations.extend([launch(1, 0, [100.0, 110.0]), launch(1, 5, [130.0, 140.0])])
    assert compare_trials(study, 5, 0).basis == "blocks"
    study.confirmations.extend([launch(2, 0, [100.0, 111.0]), launch(2, 5, [131.0, 140.0])])
    found = compare_trials(study, 5, 0)
    assert (found.basis, found.pairs) == ("launches", 2)


def test_a_trial_without_a_value_is_described_by_its_parameters(study: StoredStudy) -> None:
    unknown = study.trial(5).model_copy(update={"value": None})
    found = Comparison(unknown, study.trial(0), 1.0, 0.9, 1.1, "blocks", 3)
    assert comparison_lines(study, found)[1:3] == [
        "  trial 5: steps=4 topk=1",
        "  trial 0: speculation off, 1,912 ± 14",
    ]


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_what_the_machine_drifted_is_no_difference(
    study: StoredStudy, document: dict[str, Any], direction: str
) -> None:
    """The baseline at launches 0, 2, 4; the trials between run the very same server."""
    sign = 1 if direction == "maximize" else -1
    model = next(trial for trial in study.trials if trial.state == "baseline")
    point = next(each for each in model.load_points if each.load == study.load)
    made = []
    for number in range(5):
        speed = [value * math.exp(-0.1 * number) for value in (100.0, 110.0, 120.0)]
        per_block = {study.metric: [value**sign for value in speed]}
        drift = None if number % 2 == 0 else math.expm1(-0.1 * (number - 2))
        made.append(
            model.model_copy(
                update={
                    "number": number,
                    "state": "complete" if number % 2 else "baseline",
                    "drift": drift,
                    "load_points": [point.model_copy(update={"per_block": per_block})],
                }
            )
        )
    fields = {**document["fields"], "objective": f"{direction} {study.metric}"}
    drifting = replace(study, trials=made, document={"fields": fields})
    assert drifting.direction == direction
    for a, b in ((1, 0), (3, 1), (0, 4), (3, 2)):
        assert compare_trials(drifting, a, b).ratio == pytest.approx(1.0)
