"""The two benchmark commands run, and their numbers are of the right kind."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pytest

from benchmarks import client_overhead, coverage

PLAN = argparse.Namespace(studies=40, rounds=4, finalists=3)


def test_a_quiet_machine_shows_gains_and_no_false_ones() -> None:
    quiet = coverage.MACHINES[0]
    draw = np.random.default_rng(2)
    assert coverage.coverage(quiet, draw, PLAN) > 0.85
    assert coverage.used(quiet, draw, 1.0, PLAN) < 0.15
    assert coverage.used(quiet, draw, 1.10, PLAN) == 1.0
    assert coverage.told_apart(quiet, draw, PLAN) < 0.2


def test_drift_is_found_where_it_is() -> None:
    draw = np.random.default_rng(3)
    drifting = next(m for m in coverage.MACHINES if m.drift)
    assert coverage.drift_found(drifting, draw, PLAN) > 0.6
    assert coverage.drift_found(coverage.MACHINES[1], draw, PLAN) < 0.15


def test_equal_servers_are_hardly_ever_pruned() -> None:
    draw = np.random.default_rng(4)
    assert coverage.pruned(coverage.MACHINES[1], draw, PLAN) < 0.15


def test_the_table_is_labelled_as_simulated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["coverage", "--studies", "2"])
    coverage.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("SIMULATED: 2 studies per cell")
    assert len(lines) == 2 + len(coverage.MACHINES)


def test_the_client_is_compared_with_the_servers_own_record() -> None:
    plan = argparse.Namespace(
        concurrency=4, turns=2, chunks=20, tokens=60, first_ms=30.0, gap_ms=10.0
    )
    with client_overhead.timed_server(plan) as url:
        line: Any = client_overhead.compare(client_overhead.ours(plan), url, plan).split()
    assert line[0] == "tuner"
    errors = [abs(float(cell.rstrip("%"))) for cell in line[2:6]]
    assert errors[2] < 5
    assert errors[3] < 10
