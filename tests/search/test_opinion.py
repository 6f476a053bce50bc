"""What the model says to the confirmation, before it and of its launches."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.replayed_confirmation import replayed
from tuner.config.study import SearchConfig
from tuner.search.landscape import ground_of
from tuner.search.opinion import NO_OPINION, Opinion, nothing_known, opinion
from tuner.search.replay_table import ReplayTable, tables_of
from tuner.search.sampling import make_suggester
from tuner.store.record import ConfirmationLaunch, TrialRecord

HERE = Path(__file__).parents[2] / "benchmarks" / "landscapes"
FIRST = 8


@pytest.fixture(scope="module")
def table() -> ReplayTable:
    return tables_of([HERE / "generated-ngram-edit.json"])[0]


@pytest.fixture(scope="module")
def records(table: ReplayTable) -> list[TrialRecord]:
    """The baseline and every ninth server, launched once."""
    draw = random.Random(1)
    found = [table.launch(table.baseline, {}, [], draw)]
    for digest in list(table.truth)[1::9]:
        found.append(table.launch(digest, {}, found, draw))
    return found


def said(table: ReplayTable, records: list[TrialRecord], sampler: str = "model") -> Opinion:
    config = SearchConfig(sampler=sampler)  # type: ignore[arg-type]
    suggester = make_suggester(ground_of(table.landscape, config, launches=2))
    return opinion(suggester, records, table.objective)


def launches_of(table: ReplayTable, digests: list[str], rounds: int) -> list[ConfirmationLaunch]:
    draw = random.Random(2)
    return [
        replayed(table, round_, trial, digest, draw)
        for round_ in range(rounds)
        for trial, digest in enumerate([table.baseline, *digests])
    ]


def test_other_samplers_have_no_opinion(table: ReplayTable, records: list[TrialRecord]) -> None:
    assert said(table, records, "random") is NO_OPINION
    assert nothing_known([]) == {}
    assert NO_OPINION.after([]) == {}


def test_without_a_confirmation_nothing_changes(
    table: ReplayTable, records: list[TrialRecord]
) -> None:
    found = said(table, records)
    assert found.noise.df > 0
    assert found.after([]) == found.expected
    assert set(found.expected) == {record.digest for record in records[1:]}


def test_the_confirmation_brings_the_model_nearer_to_the_truth(
    table: ReplayTable, records: list[TrialRecord]
) -> None:
    found = said(table, records)
    digests = sorted(found.expected, key=lambda name: -found.expected[name].gain)[:3]
    after = found.after(launches_of(table, digests, 8))
    before = [found.expected[name] for name in digests]
    assert [each.sd for each in before] != [after[name].sd for name in digests]
    assert sum(after[name].sd for name in digests) < sum(each.sd for each in before)
    assert set(after) == set(found.expected)
