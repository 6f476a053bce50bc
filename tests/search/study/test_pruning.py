"""Stopping early: hopeless trials soon, equal ones hardly ever, and never for launch noise."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tuner.config.study import SearchConfig
from tuner.errors import UsageError
from tuner.measure.noise import LaunchNoise, pair_margin
from tuner.search.pruning import (
    Judged,
    OptunaPruner,
    PairedPruner,
    Reference,
    make_judge,
    never_prune,
    reference_of,
)
from tuner.store.record import LoadPointRecord, TrialRecord

BLOCKS = 6
PROMPTS = np.array([150.0, 80.0, 120.0, 60.0, 200.0, 100.0])
"""Blocks differ much more in their prompts than servers do."""
JUDGED = Judged("tok", "c1", maximize=True, blocks=BLOCKS)


def trial(number: int, factor: float, state: Any = "complete", noise: Any = 0.0) -> TrialRecord:
    values = PROMPTS * factor * np.exp(noise)
    point = LoadPointRecord(load="c1", per_block={"tok": [float(v) for v in values]})
    return TrialRecord(number=number, state=state, vs_baseline=factor, load_points=[point])


@dataclass
class Known:
    """A history as the pruner sees it."""

    baselines: list[TrialRecord] = field(default_factory=lambda: [trial(0, 1.0, "baseline")])
    complete: list[TrialRecord] = field(default_factory=list)
    shifts: dict[int | None, float] = field(default_factory=dict)

    def shift(self, record: TrialRecord | None = None) -> float:
        return self.shifts.get(record.number if record else None, 0.0)

    def ranked(self) -> list[TrialRecord]:
        return sorted(self.complete, key=lambda record: -(record.vs_baseline or 0.0))


def stopped_after(judge: Any, values: Sequence[float], known: Known) -> int | None:
    """After how many blocks a trial is stopped; None: it was measured to the end."""
    for count in range(1, len(values) + 1):
        if judge(list(values[:count]), known) is not None:
            return count
    return None


def noisy(rng: np.random.Generator, factor: float, block_sd: float = 0.03) -> list[float]:
    return [float(v) for v in PROMPTS * factor * np.exp(rng.normal(0, block_sd, BLOCKS))]


@pytest.fixture
def paired() -> PairedPruner:
    return PairedPruner(JUDGED)


def share_stopped(judge: Any, factor: float, known: Known, runs: int = 300) -> float:
    rng = np.random.default_rng(1)
    return (
        sum(stopped_after(judge, noisy(rng, factor), known) is not None for _ in range(runs))
        / runs
    )


def test_an_equal_server_is_hardly_ever_stopped(paired: PairedPruner) -> None:
    assert share_stopped(paired, 1.0, Known()) < 0.02


def test_a_server_within_the_margin_is_hardly_ever_stopped(paired: PairedPruner) -> None:
    assert share_stopped(paired, 0.985, Known()) < 0.03


def test_a_much_slower_server_is_stopped_before_half_is_measured(paired: PairedPruner) -> None:
    rng = np.random.default_rng(2)
    stops = [stopped_after(paired, noisy(rng, 0.6), Known()) for _ in range(100)]
    assert all(stop is not None for stop in stops)
    assert np.mean([stop for stop in stops if stop]) <= 3.5


def test_a_shift_of_a_whole_launch_within_the_noise_is_no_reason(paired: PairedPruner) -> None:
    shaky = Known(baselines=[trial(0, 1.0, "baseline"), trial(8, 1.06, "baseline")])
    steady = Known(baselines=[trial(8 * i, 1.0 + 0.001 * (i % 2), "baseline") for i in range(24)])
    values = [float(v) for v in PROMPTS * 0.95]  # without any noise between blocks
    assert stopped_after(paired, values, steady) is not None
    assert stopped_after(paired, values, shaky) is None
    assert paired.margin(shaky) > 0.1 > 0.05 > paired.margin(steady)
    assert paired.margin(Known()) == pytest.approx(pair_margin(LaunchNoise(math.nan, 0)))


def test_the_best_trial_is_the_reference_once_it_beats_the_baseline(paired: PairedPruner) -> None:
    rng = np.random.default_rng(3)
    values = noisy(rng, 1.1)
    assert stopped_after(paired, values, Known()) is None
    known = Known(complete=[trial(3, 1.5), trial(4, 0.9)])
    assert stopped_after(paired, values, known) is not None
    decision = next(d for n in range(2, 6) if (d := paired(values[:n], known)))
    assert decision.reference == 3
    assert decision.blocks == BLOCKS
    assert decision.ratio == pytest.approx(1.1 / 1.5, rel=0.05)
    assert decision.ratio < decision.upper < 1.0
    slower = Known(complete=[trial(4, 0.9)])
    assert reference_of(JUDGED, slower) == Reference(0, tuple(PROMPTS))


def test_what_the_machine_drifted_is_no_reason_to_stop(paired: PairedPruner) -> None:
    rng = np.random.default_rng(5)
    slowed = math.log(0.8)
    known = Known(complete=[trial(3, 1.5)], shifts={None: slowed})
    reference = reference_of(JUDGED, known)
    assert reference is not None
    assert reference.values == pytest.approx(1.5 * 0.8 * PROMPTS)
    assert stopped_after(paired, noisy(rng, 1.5 * 0.8), known) is None
    assert stopped_after(paired, noisy(rng, 1.2 * 0.8), known) is not None
    both = Known(complete=[trial(3, 1.5)], shifts={None: slowed, 3: slowed})
    assert stopped_after(paired, noisy(rng, 1.5 * 0.8), both) is not None, "as slow as now already"
    assert reference_of(JUDGED, Known(shifts={None: slowed})) == Reference(
        0, tuple(float(v) for v in PROMPTS * math.exp(slowed))
    )


def test_lower_is_better_when_minimising() -> None:
    judge = PairedPruner(Judged("tok", "c1", maximize=False, blocks=BLOCKS))
    rng = np.random.default_rng(4)
    assert stopped_after(judge, noisy(rng, 1.6), Known()) is not None
    assert stopped_after(judge, noisy(rng, 0.6), Known()) is None


@pytest.mark.parametrize("values", [[], [1.0], [0.0, 0.0, 0.0], [math.nan] * 4])
def test_too_little_is_no_reason(paired: PairedPruner, values: list[float]) -> None:
    assert paired(values, Known()) is None


def test_nothing_is_stopped_before_there_is_a_baseline(paired: PairedPruner) -> None:
    assert stopped_after(paired, [1.0] * 5, Known(baselines=[])) is None
    other_load = TrialRecord(number=0, state="baseline")
    assert stopped_after(paired, [1.0] * 5, Known(baselines=[other_load])) is None


def test_after_the_last_block_nothing_is_left_to_save(paired: PairedPruner) -> None:
    assert paired([float(v) for v in PROMPTS * 0.3], Known()) is None


# ---- Optuna's pruners -------------------------------------------------------------------------


def config(pruner: Any) -> SearchConfig:
    return SearchConfig(pruner=pruner, startup_trials=3)


@pytest.fixture
def several() -> Known:
    return Known(complete=[trial(n, factor) for n, factor in enumerate([1.1, 1.2, 1.3, 1.4], 1)])


def test_median_stops_what_is_below_the_middle(several: Known) -> None:
    judge = make_judge(config("median"), JUDGED)
    assert stopped_after(judge, list(PROMPTS * 0.9), several) is not None
    assert stopped_after(judge, list(PROMPTS * 1.35), several) is None
    few = Known(complete=several.complete[:2])
    assert stopped_after(judge, list(PROMPTS * 0.5), few) is None
    decision = judge(list(PROMPTS[:4] * 0.7), several)
    assert decision is not None
    assert (decision.after_block, decision.reference) == (4, 4)
    assert decision.ratio == pytest.approx(0.5)
    assert math.isnan(decision.upper)


def test_median_is_not_misled_by_easy_blocks(several: Known) -> None:
    judge = make_judge(config("median"), JUDGED)
    order = [float(v) for v in PROMPTS * 1.35]
    assert all(judge(order[:n], several) is None for n in range(1, BLOCKS))


def test_the_median_of_earlier_trials_is_taken_as_they_would_be_now(several: Known) -> None:
    judge = make_judge(SearchConfig(pruner="median", startup_trials=4), JUDGED)
    several.shifts = {None: math.log(0.7)}
    values = [float(v) for v in PROMPTS * 1.3 * 0.7]
    assert stopped_after(judge, values, several) is None
    several.shifts = {}
    assert stopped_after(judge, values, several) is not None


@pytest.mark.skipif(importlib.util.find_spec("scipy") is None, reason="needs scipy")
def test_wilcoxon_stops_a_consistent_loser(several: Known) -> None:
    judge = make_judge(config("wilcoxon"), JUDGED)
    assert isinstance(judge, OptunaPruner)
    assert stopped_after(judge, list(PROMPTS * 0.7), several) == 5
    assert stopped_after(judge, list(PROMPTS * 1.5), several) is None


@pytest.mark.skipif(importlib.util.find_spec("scipy") is not None, reason="scipy is installed")
def test_wilcoxon_without_scipy_is_refused() -> None:
    with pytest.raises(UsageError, match=r"search\.pruner wilcoxon: must have scipy"):
        make_judge(config("wilcoxon"), JUDGED)


def test_none_stops_nothing() -> None:
    judge = make_judge(config("none"), JUDGED)
    assert judge is never_prune
    assert stopped_after(judge, [0.1] * BLOCKS, Known()) is None


def test_every_name_of_the_configuration_makes_a_judge() -> None:
    assert isinstance(make_judge(config("paired"), JUDGED), PairedPruner)
    assert isinstance(make_judge(config("median"), JUDGED), OptunaPruner)
