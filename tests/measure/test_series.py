"""What a mean would hide is told: stalls, trends, two modes; ordinary noise is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.records import Block, LoadPoint, RequestRecord
from tuner.measure.series import (
    _best_split,
    _rank_trend,
    _stalls,
    _trend,
    _two_modes,
    acceptance_trend,
    block_warnings,
)

C1 = LoadPoint(concurrency=1)


def request(start: float, speed: float, tokens: int = 40) -> RequestRecord:
    chunks = tuple(start + (n + 1) / speed for n in range(tokens))
    return RequestRecord(
        "p", "qa", start, start, chunks[0], chunks[-1], chunks[-1], chunks, 8, tokens, 0, "stop"
    )


def block(speeds: Sequence[float], index: int = 0, pause: float = 0.0) -> Block:
    records, at = [], 0.0
    for place, speed in enumerate(speeds):
        records.append(request(at, speed))
        at = records[-1].end_s + (pause if place == len(speeds) // 2 else 0.0)
    return Block(index, C1, 0.0, at, tuple(records))


def noisy(seed: int, count: int = 24) -> list[float]:
    return list(100 * np.exp(np.random.default_rng(seed).normal(0, 0.05, count)))


def test_ordinary_noise_is_not_reported() -> None:
    reported = sum(bool(block_warnings([block(noisy(seed))])) for seed in range(60))
    assert reported <= 1


def test_a_server_that_gets_slower_is_reported() -> None:
    warnings = block_warnings([block([100 * 0.98**n for n in range(24)])])
    assert len(warnings) == 1
    assert warnings[0].startswith("requests became 28% slower")


def test_throughput_that_halves_is_reported() -> None:
    speeds = [s * (1.0 if n < 14 else 0.5) for n, s in enumerate(noisy(3))]
    text = " ".join(block_warnings([block(speeds)]))
    assert "slower" in text
    assert "two groups: 10 requests near 5" in text


def test_a_slow_start_is_reported_as_becoming_faster() -> None:
    speeds = [s * (0.2 if n < 8 else 1.0) for n, s in enumerate(noisy(4))]
    assert "faster" in " ".join(block_warnings([block(speeds)]))


def test_two_modes_without_a_trend() -> None:
    speeds = [s * (1.0 if n % 3 else 0.4) for n, s in enumerate(noisy(5))]
    warnings = block_warnings([block(speeds)])
    assert len(warnings) == 1
    assert warnings[0].startswith("speeds fall into two groups: 8 requests near 39.5 tok/s")


def test_a_stall_is_reported_with_its_length() -> None:
    calm = block([100] * 6)
    stuck = request(calm.end_s, 100)
    late = tuple(at + 2.0 * (n >= 20) for n, at in enumerate(stuck.chunk_s))
    stuck = replace(stuck, chunk_s=late, last_s=late[-1], end_s=late[-1])
    stalled = replace(calm, index=4, end_s=late[-1], records=(*calm.records, stuck))
    assert _stalls(stalled) == ["nothing arrived for 2.01 s (42% of the block)"]


def test_waiting_for_a_first_token_is_no_stall() -> None:
    assert _stalls(block([100] * 6, pause=3.0)) == []


def test_short_pauses_are_no_stall() -> None:
    assert _stalls(block([400] * 3, pause=0.0)) == []
    assert _stalls(block([100], pause=0.0)) == []


def test_notes_of_blocks_are_kept() -> None:
    one = block([100])
    noted = Block(2, C1, 0.0, one.end_s, one.records, notes=("8 prompts were repeated",))
    assert block_warnings([noted]) == ["block 2: 8 prompts were repeated"]


# ---- against calculations of their own -------------------------------------------------------


@given(st.lists(st.integers(0, 50), min_size=2, max_size=30))
def test_the_rank_trend_is_mann_and_kendalls(values: list[int]) -> None:
    pairs = [(a, b) for place, a in enumerate(values) for b in values[place + 1 :]]
    score = sum((b > a) - (b < a) for a, b in pairs)
    n = len(values)
    expected = score / (n * (n - 1) * (2 * n + 5) / 18) ** 0.5
    assert _rank_trend(values) == pytest.approx(expected)
    assert _rank_trend(values[::-1]) == pytest.approx(-expected)


def test_the_rank_trend_of_noise_is_a_standard_normal() -> None:
    draw = np.random.default_rng(1)
    found = [_rank_trend(list(draw.normal(size=24))) for _ in range(800)]
    assert np.mean(found) == pytest.approx(0.0, abs=0.1)
    assert np.std(found) == pytest.approx(1.0, abs=0.08)


@given(st.lists(st.floats(-5, 5), min_size=16, max_size=40).map(sorted))
def test_the_best_split_leaves_the_least_variance(values: list[float]) -> None:
    def left(cut: int) -> float:
        parts = (values[:cut], values[cut:])
        return sum(sum((v - sum(p) / len(p)) ** 2 for v in p) for p in parts)

    least = max(3, len(values) // 10)
    cut = _best_split(np.array(values))
    assert least <= cut <= len(values) - least
    assert left(cut) <= min(left(c) for c in range(least, len(values) - least + 1)) + 1e-7


@pytest.mark.parametrize(
    ("speeds", "is_told"),
    [
        ([100.0] * 12 + [90.0] * 12, False),  # 10 %
        ([100.0] * 12 + [84.0] * 12, True),
        ([84.0] * 12 + [100.0] * 12, True),
        ([100.0] * 6 + [84.0] * 6, False),  # as likely as not by chance
        ([100.0 * 0.9**n for n in range(12)], True),
        ([100.0 * 0.9**n for n in range(11)], False),  # too few requests
        ([100.0] * 8 + [90.0, 40.0] * 4 + [60.0] * 4 + [120.0] * 4, False),  # up and down
    ],
)
def test_a_trend_is_told_where_it_is_large_and_no_accident(
    speeds: list[float], is_told: bool
) -> None:
    wobbly = [speed * (1 + 0.001 * (n % 5)) for n, speed in enumerate(speeds)]
    assert bool(_trend(wobbly)) is is_told


@pytest.mark.parametrize(
    ("low", "high", "count", "is_told"),
    [
        (50.0, 100.0, 8, True),
        (70.0, 100.0, 8, False),  # less than half as fast again
        (66.0, 100.0, 8, True),
        (50.0, 100.0, 7, False),  # 14 requests are too few
    ],
)
def test_two_groups_are_told_from_half_as_fast_again(
    low: float, high: float, count: int, is_told: bool
) -> None:
    speeds = [speed * (1 + 0.004 * (n % 4)) for n in range(count) for speed in (low, high)]
    assert bool(_two_modes(speeds)) is is_told


def test_a_broad_spread_is_not_two_groups() -> None:
    assert _two_modes(list(np.geomspace(30, 100, 40))) == []


def paused(seconds: float, tokens: int = 40) -> Block:
    """One answer at 100 tokens per second with a pause in its middle."""
    one = request(0.0, 100, tokens)
    late = tuple(at + seconds * (n >= tokens // 2) for n, at in enumerate(one.chunk_s))
    one = replace(one, chunk_s=late, last_s=late[-1], end_s=late[-1])
    return Block(0, C1, 0.0, late[-1], (one,))


@pytest.mark.parametrize(
    ("seconds", "tokens", "is_told"),
    [
        (0.48, 40, False),  # 0.49 s between two chunks
        (0.50, 40, True),
        (5.0, 19, False),  # too few chunks to know what is usual
        (5.0, 20, True),
        (0.9, 900, False),  # under a tenth of the block
        (1.1, 900, True),
    ],
)
def test_a_stall_is_half_a_second_and_a_tenth_of_the_block(
    seconds: float, tokens: int, is_told: bool
) -> None:
    assert bool(_stalls(paused(seconds, tokens))) is is_told


def test_a_slow_server_does_not_stall_at_every_token() -> None:
    """Ten times the usual pause: at 2 tokens per second that is five seconds."""
    slow = request(0.0, 2.0, 40)
    assert _stalls(Block(0, C1, 0.0, slow.end_s, (slow,))) == []


def test_each_block_tells_of_its_own() -> None:
    blocks = [replace(paused(2.0), index=3), replace(paused(3.0), index=5)]
    assert block_warnings(blocks) == [
        "block 3: nothing arrived for 2.01 s (84% of the block)",
        "block 5: nothing arrived for 3.01 s (89% of the block)",
    ]


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ([3.0, 2.92, 2.84, 2.75, 2.68, 2.6], "fell from 3.00 to 2.60"),
        ([3.0, 2.9, 2.8, 2.7], ""),
        ([3.0, 2.99, 2.98, 2.97, 2.96, 2.95], ""),
        ([3.0, 2.4, 3.1, 2.5, 2.9, 2.3], ""),
        ([2.6, 2.68, 2.75, 2.84, 2.92, 3.0], ""),
        ([2.5] * 6, ""),
        ([3.0, 2.8, float("nan"), 2.4, 2.2], ""),
    ],
)
def test_a_draft_that_decays_while_it_serves(lengths: list[float], said: str) -> None:
    """Four blocks are too few, 2 % is nothing, and prompts differ from block to block."""
    found = acceptance_trend(lengths)
    assert [said in text for text in found] == ([True] if said else [])


def test_blocks_that_differ_by_chance_are_no_decay() -> None:
    draw = np.random.default_rng(11)
    found = [acceptance_trend(draw.normal(2.5, 0.15, 6).tolist()) for _ in range(1000)]
    assert sum(map(bool, found)) <= 10
