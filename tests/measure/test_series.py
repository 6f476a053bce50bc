"""What a mean would hide is told: stalls, trends, two modes; ordinary noise is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tuner.measure.records import Block, LoadPoint, RequestRecord
from tuner.measure.series import _stalls, block_warnings

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
