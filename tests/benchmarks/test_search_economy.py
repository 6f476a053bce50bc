"""The search benchmark on a small generated landscape: every arm ends, the table adds up."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import search_economy
from benchmarks.generate_landscapes import CPU, landscapes, lookup_counts, texts
from benchmarks.pruner_economy import prune
from benchmarks.replayed_confirmation import Recommended
from benchmarks.search_economy import HEADER, Outcome, row, search
from tuner.measure.landscape import landscape_text
from tuner.model.lookup import LookupRule
from tuner.search.replay_table import ReplayTable, tables_of


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ReplayTable:
    path = tmp_path_factory.mktemp("tables") / "edit.json"
    chosen = next(each for each in landscapes() if each.name == "generated-eagle-edit")
    path.write_text(landscape_text(chosen))
    return tables_of([path])[0]


@pytest.mark.parametrize("arm", ["model", "random", "grid", "staged", "tpe"])
def test_every_arm_ends_and_never_reports_more_than_there_is(table: ReplayTable, arm: str) -> None:
    outcome = search(table, arm, seed=1, budget=12)
    assert 0 < outcome.pick <= 1.0
    assert outcome.launches == math.inf or 1 <= outcome.launches <= 12
    assert outcome == search(table, arm, seed=1, budget=12)


def test_the_pruner_saves_and_spares_good_servers(table: ReplayTable) -> None:
    found = prune(table, seeds=3)
    assert 0.1 < found.saved < 0.9
    assert found.false == 0.0
    assert found.good > 0


def test_a_row_holds_medians_and_shares(table: ReplayTable) -> None:
    good = Recommended(ratio=1.2, seconds=50.0, covered=(True, True), decided_by="model")
    bad = Recommended(ratio=0.96, covered=(True, False))
    outcomes = [Outcome(n, 10.0 * n, 1.0, n, good, 1.2) for n in (2, 4)]
    outcomes.append(Outcome(math.inf, math.inf, 0.9, 12, bad, 1.2))
    cells = row(table, "model", outcomes)
    name, bound = table.landscape.name, cells[7]
    shares = ["67%", "67%", bound, "6.7%", "33.3%", "83%"]
    assert cells == [name, "model", "4", "never", "40", *shares]
    assert 0.5 < float(bound.rstrip("%")) / 100 <= 1.0
    assert len(cells) == len(HEADER)


def test_what_is_recommended_is_the_products_own_verdict(table: ReplayTable) -> None:
    outcome = search(table, "model", seed=2, budget=12)
    assert outcome.confirmed.ratio >= 0.98 * table.best
    assert outcome.confirmed.decided_by in (
        "launches",
        "model",
        "launches and model",
        "simplicity",
    )
    assert outcome.confirmed.seconds > 16 * 180.0  # four rounds of four launches, at least
    assert len(outcome.confirmed.covered) == 3
    assert outcome.regret < 0.02
    assert not outcome.is_worse


STRAY = ((0, (1.0,) * 4), (1, (1.0, 1.0, 1.0, 0.7)), (2, (0.9,) * 4), (3, (1.0,) * 4))


def test_a_table_with_a_stray_fast_launch_does_not_know_its_own_truth(tmp_path: Path) -> None:
    rows = ["x_steps,repeat,block,tokens,seconds"]
    for steps, times in STRAY:
        rows += [f"{steps},{repeat},0,100,{time}" for repeat, time in enumerate(times)]
    path = tmp_path / "stray.csv"
    path.write_text("\n".join(rows))
    stray = tables_of([path])[0]
    assert stray.best == pytest.approx(1 / 0.7)
    assert 0.65 < search_economy.noise_bound(stray) < 0.85


def test_generated_lookups_are_exact_and_said_to_be_generated() -> None:
    pairs = texts("edit", 5, count=6)
    few, many = (lookup_counts(pairs, LookupRule(3, depth)) for depth in (2, 16))
    assert sum(c.steps for c in many) < sum(c.steps for c in few)
    assert CPU.step == pytest.approx(0.0074)
    shipped = sorted(search_economy.HERE.glob("generated-*.json"))
    assert len(shipped) >= 6
    assert all(isinstance(path, Path) for path in shipped)


def test_every_shipped_landscape_is_a_table() -> None:
    names = {path.name for path in search_economy.shipped_landscapes()}
    assert {"llamacpp-ngram-edit.csv", "ngram-chat.json", "draft-synthetic.json"} <= names
    assert not any("texts" in name for name in names)


def test_seeds_can_start_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    path = search_economy.HERE / "generated-draft-loses.json"
    options = ["--arms", "random", "--seeds", "1", "--budget", "2"]
    assert search_economy.main([str(path), *options, "--first-seed", "7"]) == 0
    assert "| generated-draft-loses | random |" in capsys.readouterr().out
