"""The confirmation: interleaved, resumable, faithful, on held-out prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.config.study import ConfirmConfig, FidelityConfig
from tuner.errors import FailureKind, HostError, Interrupted, TrialFailure
from tuner.measure.records import Block
from tuner.search.confirm import (
    Campaign,
    confirm,
    order_of,
    planned_rounds,
    select_finalists,
    without_drift,
)
from tuner.search.history import History
from tuner.store.record import ConfirmationLaunch

GREEDY = FidelityConfig()


class MemoryKeeper:
    def __init__(self, folder: Path) -> None:
        self.kept: list[ConfirmationLaunch] = []
        self.blocks: dict[int, list[Block]] = {}
        self.folder = folder

    def launches(self) -> list[ConfirmationLaunch]:
        return list(self.kept)

    def keep_launch(self, launch: ConfirmationLaunch, blocks: Sequence[Block]) -> None:
        self.kept.append(launch)
        self.blocks[launch.order] = list(blocks)

    def launch_blocks(self, order: int) -> list[Block]:
        return self.blocks[order]

    def launch_folder(self, order: int) -> Path:
        return self.folder / str(order)


def seconds(value: float, **more: Any) -> dict[str, Any]:
    return {"seconds": [value, 2 * value], **more}


def script(rounds: int, speeds: dict[int, float], **more: Any) -> dict[str, Any]:
    return {
        f"confirm-{r}-{trial}": seconds(value * (1 + 0.001 * ((r + trial) % 3)), **more)
        for r in range(rounds)
        for trial, value in speeds.items()
    }


@pytest.fixture
def campaign(bench, tmp_path):
    def make(plays: dict[str, Any], trials: Sequence[int], rounds: int = 4) -> Campaign:
        servers = {0: ServerArgs()} | {n: ServerArgs({"steps": n}) for n in trials}
        return Campaign(bench(plays), MemoryKeeper(tmp_path), rounds, servers)

    return make


def test_rounds_are_interleaved_forwards_and_backwards(campaign) -> None:
    made = campaign(script(3, {0: 1.0, 1: 0.5, 2: 0.9}), [1, 2], 3)
    confirm(made, GREEDY)
    assert made.bench.runner.played == [
        "confirm-0-0", "confirm-0-1", "confirm-0-2",
        "confirm-1-2", "confirm-1-1", "confirm-1-0",
        "confirm-2-0", "confirm-2-1", "confirm-2-2",
    ]  # fmt: skip
    assert order_of(1, [0, 1]) == [1, 0]


def test_a_confirmed_winner_is_recommended_with_its_interval(campaign) -> None:
    result = confirm(campaign(script(4, {0: 1.0, 1: 0.5}), [1]), GREEDY)
    assert (result.verdict, result.trial, result.held_out) == ("use", 1, True)
    assert result.ratio == pytest.approx(2.0, rel=0.01)
    assert 1.9 < result.low < result.high < 2.1
    assert result.server_args.flags == {"steps": 1}
    assert result.fidelity == "match"
    assert result.objective == "maximize output_tokens_per_s at c1"


def test_equal_servers_keep_the_baseline(campaign) -> None:
    result = confirm(campaign(script(4, {0: 1.0, 1: 1.0}), [1]), GREEDY)
    assert (result.verdict, result.trial, result.ratio) == ("keep_baseline", 0, None)
    assert result.server_args.flags == {}
    assert result.finalists[0].ratio == pytest.approx(1.0, abs=0.01)


def test_no_finalist_keeps_the_baseline_without_a_launch(campaign) -> None:
    made = campaign({}, [])
    result = confirm(made, GREEDY, ["never accepted", "inspect the draft"])
    assert result.verdict == "keep_baseline"
    assert result.reasons == ["never accepted", "inspect the draft"]
    assert made.bench.runner.played == []


def test_an_interrupted_confirmation_goes_on_where_it_stopped(campaign) -> None:
    plays = script(2, {0: 1.0, 1: 0.5})
    stopped = {**plays, "confirm-1-0": Interrupted("ctrl-c")}
    made = campaign(stopped, [1], 2)
    with pytest.raises(Interrupted):
        confirm(made, GREEDY)
    assert len(made.keeper.kept) == 3
    made.bench.runner.script = plays
    made.bench.runner.played.clear()
    assert confirm(made, GREEDY).verdict == "use"
    assert made.bench.runner.played == ["confirm-1-0"]


def test_launches_of_other_finalists_are_not_mixed_in(campaign) -> None:
    one = campaign(script(2, {0: 1.0, 1: 0.5}), [1], 2)
    confirm(one, GREEDY)
    two = campaign(script(2, {0: 1.0, 2: 0.5}), [2], 2)
    two.keeper = one.keeper
    confirm(two, GREEDY)
    assert len(two.bench.runner.played) == 4
    assert sorted(launch.order for launch in one.keeper.kept) == list(range(8))


def test_changed_answers_are_found_against_the_control(campaign) -> None:
    plays = script(2, {0: 1.0, 1: 0.5})
    for name in plays:
        if name.endswith("-1"):
            plays[name] = {**plays[name], "text": "something else"}
    result = confirm(campaign(plays, [1], 2), FidelityConfig(tolerance="strict"))
    assert result.verdict == "keep_baseline"
    assert any("changes the answers" in reason for reason in result.reasons)
    relaxed = confirm(campaign(plays, [1], 2), FidelityConfig(compare="off"))
    assert (relaxed.verdict, relaxed.fidelity) == ("use", "off")


@pytest.mark.parametrize("failed", ["confirm-0-1", "confirm-0-0", "confirm-1-0"])
def test_changed_answers_are_found_although_a_launch_failed(campaign, failed: str) -> None:
    plays = script(4, {0: 1.0, 1: 0.5})
    for name in plays:
        if name.endswith("-1"):
            plays[name] = {**plays[name], "text": "something else"}
    plays[failed] = TrialFailure(FailureKind.DIED, "segfault")
    result = confirm(campaign(plays, [1], 4), GREEDY)
    assert result.verdict == "keep_baseline"
    assert any("changes the answers" in reason for reason in result.reasons)
    alone = {**plays, **{f"confirm-{r}-0": plays[failed] for r in (1, 2, 3)}}
    assert confirm(campaign(alone, [1], 4), GREEDY).reasons == ["No finalist could be confirmed."]


def test_a_launch_that_fails_is_recorded_and_not_fatal(campaign) -> None:
    plays = script(3, {0: 1.0, 1: 0.5})
    plays["confirm-1-1"] = TrialFailure(FailureKind.DIED, "segfault")
    made = campaign(plays, [1], 3)
    assert confirm(made, GREEDY).verdict == "use"
    assert [launch.failure for launch in made.keeper.kept].count("died") == 1


def test_a_server_that_cannot_be_stopped_ends_the_confirmation(campaign) -> None:
    plays = script(2, {0: 1.0, 1: 0.5})
    plays["confirm-0-1"] = TrialFailure(FailureKind.NOT_STOPPED, "pid 7 is left", hint="reboot")
    with pytest.raises(HostError, match="pid 7 is left"):
        confirm(campaign(plays, [1], 2), GREEDY)


def test_finalists_are_real_distinct_and_not_hopeless(bench, objective, trial) -> None:
    history = History(
        objective,
        [
            trial(0, "baseline", (100.0, 110.0)),
            trial(1, vs_baseline=1.3),
            trial(2, vs_baseline=1.5, is_synthetic=True),
            trial(3, vs_baseline=1.3, digest="d1"),
            trial(4, vs_baseline=0.7),
            trial(5, vs_baseline=0.99),
        ],
    )
    chosen = select_finalists(history, 3)
    assert [record.number for record in chosen] == [1, 5]


def test_the_best_lossless_server_is_a_finalist_too(objective, trial) -> None:
    lossy = [trial(n, vs_baseline=1.9 - n / 10, is_lossy=True) for n in (1, 2, 3)]
    others = [trial(4, vs_baseline=1.2), trial(5, vs_baseline=1.3)]
    history = History(objective, [trial(0, "baseline", (100.0, 110.0)), *lossy, *others])
    assert [record.number for record in select_finalists(history, 2)] == [1, 5]
    assert [record.number for record in select_finalists(history, 4)] == [1, 2, 3, 5]
    assert [record.number for record in select_finalists(history, 1)] == [1]


def test_rounds_are_planned_from_the_noise_before_any_is_run(objective, trial) -> None:
    quiet = [trial(i, "baseline", (100.0 + 0.01 * i, 110.0)) for i in range(4)]
    steps = enumerate((0, 3, 1, 2))
    loud = [trial(i, "baseline", (100.0 * 1.1**k, 110.0 * 1.1**k)) for i, k in steps]
    config = ConfirmConfig(rounds=4, max_rounds=9)
    clear, close = [trial(9, vs_baseline=1.3)], [trial(9, vs_baseline=1.05)]
    assert planned_rounds(config, History(objective, quiet), clear) == 4
    assert planned_rounds(config, History(objective, loud), close) == 9
    hot = History(objective, [trial(i, "baseline", (99.0**i, 99.0**i)) for i in range(4)])
    assert planned_rounds(ConfirmConfig(rounds=3), hot, clear) == 4, "a drift cancels in pairs"
    assert planned_rounds(ConfirmConfig(rounds=3, max_rounds=3), hot, clear) == 3
    assert planned_rounds(ConfirmConfig(rounds=3), History(objective, loud), close) == 6
    assert planned_rounds(config, History(objective, quiet[:1]), close) == 4
    assert planned_rounds(config, History(objective, loud), []) == 4


def test_a_known_drift_leaves_nothing_but_the_gain(launch) -> None:
    """A B B A at -2 % per launch: each round is off by one launch, either way."""
    order = [(0, 0, 1.0), (0, 1, 1.1), (1, 1, 1.1), (1, 0, 1.0)]
    drifting = [
        launch(round_, trial, 100 * gain * math.exp(-0.02 * at), order=at)
        for at, (round_, trial, gain) in enumerate(order)
    ]
    steady = without_drift(list(reversed(drifting)), -0.02)
    assert [each.order for each in steady] == [0, 1, 2, 3]
    levels = [each.per_block[0] for each in steady]
    assert levels == pytest.approx([levels[0], 1.1 * levels[0], 1.1 * levels[0], levels[0]])
    assert without_drift(drifting, 0.0)[2].per_block == drifting[2].per_block
