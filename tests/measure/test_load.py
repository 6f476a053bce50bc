"""When requests are sent."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.measure.load import arrivals, read_trace, stable_seed
from tuner.measure.records import LoadPoint


def test_closed_loops_have_no_arrivals() -> None:
    assert arrivals(LoadPoint(concurrency=4), 8, seed=1) is None


def test_constant_arrivals() -> None:
    load = LoadPoint(rate=4.0, arrivals="constant")
    assert arrivals(load, 4, seed=1) == (0.0, 0.25, 0.5, 0.75)


def test_poisson_arrivals_have_the_rate_and_the_spread() -> None:
    times = arrivals(LoadPoint(rate=10.0), 20_000, seed=3)
    assert times is not None
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(0.1, rel=0.03)
    assert spread == pytest.approx(mean, rel=0.03)


def test_poisson_arrivals_depend_on_the_seed_alone() -> None:
    load = LoadPoint(rate=10.0)
    assert arrivals(load, 5, seed=3) == arrivals(load, 5, seed=3)
    assert arrivals(load, 5, seed=3) != arrivals(load, 5, seed=4)


def test_a_trace_is_replayed_and_goes_round() -> None:
    load = LoadPoint(trace="x")
    trace = (0.0, 1.0, 3.0)
    assert arrivals(load, 3, seed=0, trace=trace) == (0.0, 1.0, 3.0)
    assert arrivals(load, 4, seed=0, first=1, trace=trace) == (0.0, 2.0, 3.0, 5.0)
    assert arrivals(load, 2, seed=0) == (0.0, 0.0)


def test_seeds_are_stable_over_processes() -> None:
    assert stable_seed(7, "c1", 0) == stable_seed(7, "c1", 0)
    assert stable_seed(7, "c1", 0) != stable_seed(7, "c10", "")
    assert stable_seed("a") == 14598278634844962250


@pytest.mark.parametrize(
    "text",
    ["12.5\n10\n\n13\n", '{"timestamp": 12.5}\n{"timestamp": 10}\n{"timestamp": 13}\n'],
)
def test_trace_files(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trace.txt"
    file.write_text(text)
    assert read_trace(str(file)) == (0.0, 2.5, 3.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\nnoon\n", ":2: must be an arrival time in seconds, got 'noon'"),
        ("1\nNaN\n", ":2: must be an arrival time"),
        ('1\n{"x": 2}\n', ":2: must be an arrival time"),
        ("1\n", "must hold at least two arrival times, got 1"),
    ],
)
def test_trace_mistakes_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "trace.txt"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_trace(str(file))


def test_a_missing_trace() -> None:
    with pytest.raises(UsageError, match="must be a readable trace file"):
        read_trace("/nowhere/trace.txt")
