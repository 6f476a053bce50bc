"""What the client measures is what the (synthetic) server wrote down, request by request.

Server and client share the monotonic clock, so stamps can be compared one by one. The server
stamps a chunk just before it writes it: an arrival is never earlier, and usually hardly later.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tuner.measure.client import LoadClient
from tuner.measure.load import arrivals, stable_seed
from tuner.measure.metrics import steady_window, summarize, ttft_ms
from tuner.measure.records import Block, LoadPoint, Prompt, Sampling
from tuner.measure.wire import openai_chat

Measured = tuple[Block, list[dict[str, Any]]]
CLOSE_S = 0.01
C1, C4 = LoadPoint(concurrency=1), LoadPoint(concurrency=4)


@pytest.fixture
def measured(
    fake_server: Callable[..., Any], workload: Callable[..., Any], prompts: Callable[..., Any]
) -> Callable[..., Measured]:
    """Measure one block on a fake server; gives it with the server's own record."""

    def run(behaviour: dict[str, Any], load: LoadPoint, count: int, **more: Any) -> Measured:
        server = fake_server({"launch_seed": 1, **behaviour}, more.pop("flags", None))
        asked: tuple[Prompt, ...] = more.pop("prompts", prompts(count))
        work = workload(sampling=Sampling(max_tokens=24, exact_tokens=True), **more)
        with LoadClient(server.base_url, openai_chat("fake"), work, alive=lambda: None) as client:
            before = len(json.loads(client.get_text("/truth") or "")["requests"])
            block = client.run_block(0, asked, load)
            truth = json.loads(client.get_text("/truth") or "")["requests"][before:]
        return block, truth

    return run


def pairs(measured: Measured) -> list[tuple[Any, dict[str, Any]]]:
    """Records with the truth of the same request, in the order of arrival."""
    block, truth = measured
    assert len(truth) == len(block.records)
    by_text = {entry["prompt"]: entry for entry in truth}
    if len(by_text) == len(truth):
        texts = {f"p{n}": f"Question number {n}?" for n in range(len(truth))}
        return [(record, by_text[texts[record.prompt_id]]) for record in block.records]
    return list(zip(block.records, truth, strict=True))


def lag(pairs: list[tuple[float, float]]) -> float:
    """Median of measured minus true; every one must be on the right side of the truth."""
    late = [measured - true for measured, true in pairs]
    assert min(late) > -0.0005
    return statistics.median(late)


SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a token per chunk": ({"step_ms": 4}, {}),
    "several tokens per chunk": ({"step_ms": 12}, {"spec-steps": 3, "spec-topk": 1}),
    "bursts of twelve tokens": ({"step_ms": 3, "tokens_per_chunk": 12}, {}),
    "a slow first token": ({"ttft_ms": 150, "step_ms": 3}, {}),
    "the first requests slow": ({"slow_first": 3, "slow_first_factor": 4, "step_ms": 3}, {}),
    "usage with the last chunk": ({"usage": "last", "step_ms": 3}, {}),
    "all at once": ({"step_ms": 0, "ttft_ms": 40}, {}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_request_has_the_servers_tokens_and_times(
    measured: Callable[..., Measured], shape: str
) -> None:
    behaviour, flags = SHAPES[shape]
    found = pairs(measured(behaviour, C4, 8, flags=flags))
    assert all(record.ok for record, _ in found)
    for record, truth in found:
        assert record.output_tokens == truth["output_tokens"] == 24
        assert record.prompt_tokens == truth["prompt_tokens"]
        assert record.sent_s <= truth["arrived_s"]
        if shape != "all at once":
            assert len(record.chunk_s) == len(truth["chunk_s"])
    assert lag([(record.first_s, truth["first_s"]) for record, truth in found]) < CLOSE_S
    assert lag([(record.last_s, truth["last_s"]) for record, truth in found]) < CLOSE_S
    true_ttft = [1000 * (truth["first_s"] - truth["arrived_s"]) for _, truth in found]
    ttft = [ttft_ms(record) for record, _ in found]
    assert statistics.median(ttft) == pytest.approx(statistics.median(true_ttft), abs=8)


def test_every_chunk_has_its_time(measured: Callable[..., Measured]) -> None:
    chunks = [
        pair
        for record, truth in pairs(measured({"step_ms": 5}, C4, 8))
        for pair in zip(record.chunk_s, truth["chunk_s"], strict=True)
    ]
    assert len(chunks) == 8 * 24
    assert lag(chunks) < 0.002


def test_cumulative_usage_and_missing_usage(measured: Callable[..., Measured]) -> None:
    block, truth = measured({"usage": "missing"}, C1, 3)
    assert [record.error for record in block.records] == ["the server reported no usage"] * 3
    assert [entry["output_tokens"] for entry in truth] == [24] * 3


def test_half_of_the_requests_failing_fast_give_no_tokens(
    measured: Callable[..., Measured],
) -> None:
    block, truth = measured({"reject_share": 0.5, "step_ms": 3}, C4, 24)
    served = [entry for entry in truth if entry["outcome"] != "rejected"]
    assert 0 < len(served) < 24
    metrics = summarize([block]).at(C4).metrics
    assert metrics["error_rate"] == pytest.approx(1 - len(served) / 24)
    tokens = sum(entry["output_tokens"] for entry in served)
    assert metrics["output_tokens_per_s"] == pytest.approx(tokens / block.wall_s)
    assert metrics["requests_per_s"] == pytest.approx(len(served) / block.wall_s)
    errors = {record.error for record in block.records if not record.ok}
    assert errors == {"HTTP 503: Server is overloaded"}


def test_answers_from_the_cache_are_recorded_as_such(measured: Callable[..., Measured]) -> None:
    """Repeats are ten times faster from the cache: that is seen, and unique openings avoid it."""
    same = (Prompt("p0", ({"role": "user", "content": "Once more, please?"},)),) * 4
    behaviour = {"ttft_ms": 80, "cache_speedup": 10, "step_ms": 1}
    block, truth = measured(behaviour, C1, 4, prompts=same)
    assert [record.cached_tokens for record in block.records] == [0, 2, 2, 2]
    assert [record.cached_tokens for record in block.records] == [
        t["cached_tokens"] for t in truth
    ]
    first, *others = (ttft_ms(record) for record in block.records)
    assert first > 70 > max(others)
    block, _ = measured(behaviour, C1, 4, prompts=same, cache="unique")
    assert [record.cached_tokens for record in block.records] == [0] * 4
    assert min(ttft_ms(record) for record in block.records) > 70


# ---- loads --------------------------------------------------------------------------------------
def due(block: Block, truth: list[dict[str, Any]]) -> list[tuple[float, float]]:
    arrived = sorted(entry["arrived_s"] for entry in truth)
    planned = sorted(record.scheduled_s for record in block.records)
    return list(zip(arrived, planned, strict=True))


@pytest.mark.parametrize(
    "load",
    [
        LoadPoint(rate=50.0, arrivals="constant"),
        LoadPoint(rate=60.0),
        LoadPoint(trace="t"),
    ],
    ids=lambda load: load.label,
)
def test_open_loop_requests_reach_the_server_when_they_are_due(
    measured: Callable[..., Measured], load: LoadPoint
) -> None:
    trace = (0.0, 0.01, 0.012, 0.1, 0.25, 0.26)
    found = measured({"step_ms": 8}, load, 12, traces={"t": trace})
    block, truth = found
    seed = stable_seed(0, load.label, 0)
    planned = arrivals(load, 12, seed=seed, trace=trace) or ()
    assert [r.scheduled_s - block.start_s for r in block.records] == pytest.approx(planned)
    assert lag(due(block, truth)) < CLOSE_S
    assert block.peak_in_flight > 2


def test_an_open_loop_does_not_wait_for_a_slow_server(measured: Callable[..., Measured]) -> None:
    block, truth = measured({"ttft_ms": 400}, LoadPoint(rate=100.0, arrivals="constant"), 20)
    assert block.peak_in_flight == 20
    assert max(entry["running"] for entry in truth) == 20
    assert max(r.sent_s for r in block.records) < min(r.end_s for r in block.records)


def test_a_closed_loop_refills_its_slots_at_once(measured: Callable[..., Measured]) -> None:
    block, truth = measured({"step_ms": 2}, C4, 24)
    assert max(entry["running"] for entry in truth) == block.peak_in_flight == 4
    ends = sorted(record.end_s for record in block.records)[:20]
    starts = sorted(record.sent_s for record in block.records)[4:]
    waits = [start - end for end, start in zip(ends, starts, strict=True)]
    assert min(waits) >= 0
    assert statistics.median(waits) < CLOSE_S


def test_steady_throughput_leaves_ramps_out(measured: Callable[..., Measured]) -> None:
    """Four answers at once, the last ones alone: only the time of full load counts."""
    block, truth = measured({"step_ms": 5}, C4, 22)
    start, stop = steady_window(block)
    stamps = [at for entry in truth for at in entry["chunk_s"] if start < at <= stop]
    metrics = summarize([block]).at(C4).metrics
    assert metrics["steady_tokens_per_s"] == pytest.approx(len(stamps) / (stop - start), rel=0.05)
    assert metrics["steady_tokens_per_s"] > metrics["output_tokens_per_s"]


def test_a_server_that_halves_is_seen_in_the_series(measured: Callable[..., Measured]) -> None:
    block, _ = measured({"step_ms": 4, "slow_after_s": 1.5, "slow_after_factor": 2.0}, C1, 30)
    warnings = summarize([block]).warnings
    assert any("slower from the first third to the last" in text for text in warnings), warnings


def test_percentiles_are_those_of_the_servers_own_gaps(measured: Callable[..., Measured]) -> None:
    block, truth = measured({"step_ms": 6}, C4, 12)
    gaps = [1000 * (b - a) for entry in truth for a, b in pairwise(entry["chunk_s"])]
    metrics = summarize([block]).at(C4).metrics
    assert metrics["inter_chunk_ms"] == pytest.approx(statistics.fmean(gaps), rel=0.02)
    assert metrics["inter_chunk_p50_ms"] == pytest.approx(statistics.median(gaps), rel=0.1)
