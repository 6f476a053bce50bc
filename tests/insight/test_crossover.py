"""At which concurrency speculation stops paying."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuner.insight.crossover import concurrency_of, find_crossover

Make = Callable[..., Any]
LOADS = (1, 4, 16, 64)


def test_a_crossing_between_two_loads(make_world: Make) -> None:
    world = make_world()
    found = find_crossover(world.trial(1, 3, loads=LOADS), [world.trial(0, 0, loads=LOADS)])
    assert [each.load for each in found.points] == ["c1", "c4", "c16", "c64"]
    assert found.at is not None
    assert 16 < found.at < 64
    gain = world.speed(3) / world.speed(0)
    true = next(c for c in range(1, 200) if gain * (1 + (c - 1) * 0.02) < 1 + (c - 1) * 0.08)
    assert found.at == pytest.approx(true, rel=0.35)
    assert "stops paying at about concurrency" in found.sentence


def test_not_within_what_was_measured(make_world: Make) -> None:
    world = make_world()
    found = find_crossover(world.trial(1, 3, loads=(1, 4)), [world.trial(0, 0, loads=(1, 4))])
    assert found.at is None
    assert "not within what was measured; still 1." in found.sentence
    assert found.to_json()["concurrency"] is None


def test_one_load_tells_no_crossing(make_world: Make) -> None:
    world = make_world()
    found = find_crossover(world.trial(1, 3), [world.trial(0, 0)])
    assert "only c1 was measured" in found.sentence


def test_it_never_pays(make_world: Make) -> None:
    world = make_world(rates=(0.1,) * 7, draft=0.01)
    found = find_crossover(world.trial(1, 3, loads=LOADS), [world.trial(0, 0, loads=LOADS)])
    assert "pays at no load that was measured" in found.sentence


def test_nothing_in_common(make_world: Make) -> None:
    world = make_world()
    assert "unknown" in find_crossover(world.trial(1, 3), []).sentence
    assert concurrency_of("r4") is None
    assert concurrency_of("c8") == 8
