"""The per-batch-size table."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.engines.vllm.schedule import (
    build_schedule,
    normalize_schedule,
    read_schedule,
    schedule_problem,
    tokens_for,
    with_schedule,
)

TABLES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6)), min_size=1, max_size=6)


def dense(table: list[list[int]], limit: int, most: int) -> list[int]:
    """The lookup that vLLM builds: capped, gaps and tail carried forward."""
    found, tokens = [], 0
    for batch in range(1, most + 1):
        for first, last, wanted in sorted(table):
            if first <= batch <= last:
                tokens = min(wanted, limit)
        found.append(tokens)
    return found


def contiguous(steps: list[tuple[int, int]]) -> list[list[int]]:
    rows, first = [], 1
    for length, tokens in steps:
        rows.append([first, first + length - 1, tokens])
        first += length
    return rows


@given(TABLES, st.integers(1, 6))
def test_the_shortest_form_means_the_same(steps: list[tuple[int, int]], limit: int) -> None:
    table = contiguous(steps)
    short = normalize_schedule(table, limit)
    assert schedule_problem(short) == ""
    assert dense(short, limit, 60) == dense(table, limit, 60)
    assert [tokens_for(short, b) for b in range(1, 61)] == dense(table, limit, 60)
    assert normalize_schedule(short, limit) == short
    assert all(a[2] != b[2] for a, b in itertools.pairwise(short))


def test_gaps_belong_to_the_entry_before() -> None:
    assert normalize_schedule([[32, 128, 2], [1, 16, 3]], None) == [[1, 31, 3], [32, 128, 2]]


@pytest.mark.parametrize(
    ("table", "problem"),
    [([], "non-empty"), ("text", "non-empty"), ([[1, 2]], "three integers"),
     ([[1, 2, 3.5]], "three integers"), ([[True, 2, 3]], "three integers"),
     ([[2, 4, 1]], "start at 1"), ([[1, 4, -1]], "at least 0"), ([[4, 1, 1]], "first <= last"),
     ([[1, 4, 2], [4, 8, 1]], "overlap"), ([[1, 8, 0]], "")],
)  # fmt: skip
def test_problems_are_named(table: object, problem: str) -> None:
    assert problem in schedule_problem(table)
    assert bool(schedule_problem(table)) == bool(problem)


def test_malformed_tables_pass_unchanged() -> None:
    assert normalize_schedule([[2, 4, 1]], 3) == [[2, 4, 1]]
    assert read_schedule("1-x:3") == "1-x:3"
    assert read_schedule("1:4, 2-8:2") == [[1, 1, 4], [2, 8, 2]]
    assert read_schedule(7) == 7


def test_measured_depths_become_a_table() -> None:
    assert build_schedule({1: 5, 8: 3, 64: 0}, 256) == [[1, 2, 5], [3, 22, 3], [23, 256, 0]]
    assert build_schedule({1: 3, 8: 3}, 8) == [[1, 8, 3]]
    assert build_schedule({4: 2, 5: 6}, 9) == [[1, 4, 2], [5, 9, 6]]


def test_a_configuration_follows_the_table() -> None:
    spec = {"method": "eagle3", "model": "/d", "num_speculative_tokens": 2}
    assert with_schedule(spec, {1: 5, 8: 3, 64: 0}, 256) == {
        "method": "eagle3", "model": "/d", "num_speculative_tokens": 5,
        "num_speculative_tokens_per_batch_size": [[1, 2, 5], [3, 22, 3], [23, 256, 0]],
    }  # fmt: skip
    with pytest.raises(ValueError, match="some depth must be at least 1"):
        with_schedule(spec, {1: 0, 8: 0}, 64)


@pytest.mark.parametrize("best", [{}, {0: 3}, {1: -1}, {300: 2}])
def test_what_cannot_be_a_table(best: dict[int, int]) -> None:
    with pytest.raises(ValueError, match="schedule: batch sizes must be"):
        build_schedule(best, 256)
