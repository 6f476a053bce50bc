"""Stored trials at several loads become one model of all loads."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.search_economy import HERE
from tuner.config.study import SearchConfig
from tuner.measure.landscape import Landscape, RecordedLaunch, RecordedServer, read_landscape
from tuner.model.observation import BASELINE
from tuner.search.landscape import ground_of
from tuner.search.model_loads import Fleet, loaded_launches, requests_at_once
from tuner.search.model_sampler import ModelSuggester
from tuner.store.record import ArgsRecord, LoadPointRecord, TrialRecord


def record_of(server: RecordedServer, launch: RecordedLaunch, ratio: float) -> TrialRecord:
    points = [
        LoadPointRecord(
            load=load,
            block_counts={
                name: [float(getattr(block, name) or 0.0) for block in blocks]
                for name in ("tokens", "seconds", "requests", "steps", "drafted", "accepted")
            },
        )
        for load, blocks in launch.blocks.items()
    ]
    return TrialRecord(
        number=0,
        state="baseline" if server.is_baseline else "complete",
        requested_args=ArgsRecord.model_validate(server.args.to_json()),
        digest=server.args.digest,
        load_points=points,
        vs_baseline=ratio,
        acceptance_per_position=list(launch.per_position),
    )


@dataclass(frozen=True)
class Searched:
    """A landscape, its suggester, and a few launches."""

    landscape: Landscape
    suggester: ModelSuggester
    records: list[TrialRecord]


def searched(name: str, count: int, loads: int = 9) -> Searched:
    landscape = read_landscape(HERE / name)
    ground = ground_of(landscape, SearchConfig(), launches=30)
    draw = random.Random(3)
    base = landscape.baseline
    records = [record_of(base, launch, 1.0) for launch in base.launches[:3]]
    for server in draw.sample([s for s in landscape.servers if s.works and s != base], count):
        record = record_of(server, server.launches[0], 1.1)
        kept = record.load_points[: loads if len(records) > 4 else 9]
        records.append(record.model_copy(update={"load_points": kept}))
    return Searched(landscape, ModelSuggester(ground), records)


def errors(found: Searched, load: str) -> tuple[float, float]:
    """Median error in logs over all servers, and the share within two standard deviations."""
    at_once = requests_at_once(load)
    assert at_once is not None
    means, sds = found.suggester.at_loads(found.records, [at_once])[at_once]
    landscape, base = found.landscape, found.landscape.baseline
    servers = found.suggester.ground.survey.servers
    by_digest = {each.args.digest: each for each in landscape.servers}
    true = np.array([
        np.log(landscape.speed(by_digest[args.digest], load) / landscape.speed(base, load))
        if by_digest[args.digest].works else np.nan
        for _, args in servers
    ])  # fmt: skip
    known = np.isfinite(true)
    off = np.abs(means - true)[known]
    return float(np.median(off)), float(np.mean(off < 2.0 * sds[known]))


@pytest.mark.parametrize(("name", "load", "most"), [
    ("generated-eagle-edit.json", "c1", 0.03),
    ("generated-eagle-edit.json", "c16", 0.03),
    ("generated-eagle3-tree.json", "c1", 0.03),
    ("generated-eagle3-tree.json", "c64", 0.03),
])  # fmt: skip
def test_six_launches_predict_all_servers_at_every_load(name: str, load: str, most: float) -> None:
    median, covered = errors(searched(name, 6), load)
    assert median < most
    assert covered > 0.9


def test_two_launches_at_all_loads_are_enough_for_the_others_load() -> None:
    median, covered = errors(searched("generated-eagle-edit.json", 6, loads=1), "c16")
    assert median < 0.04
    assert covered > 0.9


def test_where_costs_are_not_proportional_the_prediction_says_so() -> None:
    found = searched("generated-eagle3-tree.json", 6)
    median, covered = errors(found, "c8")  # verification is free up to a point there
    spread = found.suggester.at_loads(found.records, [8.0, 64.0])
    assert median > 0.03
    assert covered > 0.9
    assert np.median(spread[8.0][1]) > 1.5 * np.median(spread[64.0][1])


def test_launches_hold_every_load_and_the_baseline_drafts_nothing() -> None:
    found = searched("generated-eagle-edit.json", 2)
    suggester = found.suggester
    fleet = Fleet(suggester._servers, suggester._designs)
    launches = loaded_launches(found.records, fleet)
    assert [each.server == BASELINE for each in launches] == [True] * 3 + [False] * 2
    assert all(sorted(each.blocks) == [1.0, 16.0] for each in launches)
    assert launches[0].at(16.0).totals[4] == 0.0
    assert launches[3].whole().totals[4] > 0.0


def test_a_rate_has_no_number_of_requests_at_once() -> None:
    assert requests_at_once("c16") == 16.0
    assert [requests_at_once(label) for label in ("2/s", "", "c0", "trace")] == [None] * 4


def test_without_counters_nothing_is_said() -> None:
    found = searched("generated-eagle-edit.json", 2)
    bare = [record.model_copy(update={"load_points": []}) for record in found.records]
    assert found.suggester.at_loads(bare, [1.0]) == {}
