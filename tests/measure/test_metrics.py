"""Every formula on requests whose times are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.config.workload import LimitsConfig
from tuner.measure.metrics import METRICS, block_value, steady_window, summarize
from tuner.measure.records import Acceptance, Block, LoadPoint, RequestRecord

C1, C2 = LoadPoint(concurrency=1), LoadPoint(concurrency=2)


def request(sent: float = 0.0, **changes: Any) -> RequestRecord:
    """100 ms to the first chunk, five chunks 50 ms apart, 13 tokens, 320 ms in all."""
    chunks = tuple(sent + 0.1 + 0.05 * n for n in range(5))
    values: dict[str, Any] = {
        "prompt_id": "p",
        "category": "qa",
        "scheduled_s": sent,
        "sent_s": sent,
        "first_s": chunks[0],
        "last_s": chunks[-1],
        "end_s": sent + 0.32,
        "chunk_s": chunks,
        "prompt_tokens": 7,
        "output_tokens": 13,
        "cached_tokens": None,
        "finish_reason": "stop",
        "text": "x" * 50,
        **changes,
    }
    return RequestRecord(**values)


def block(*records: RequestRecord, load: LoadPoint = C1, **changes: Any) -> Block:
    values: dict[str, Any] = {
        "index": 0,
        "load": load,
        "start_s": 0.0,
        "end_s": max(record.end_s for record in records),
        "records": records,
        "peak_in_flight": load.concurrency or 1,
        **changes,
    }
    return Block(**values)


FAILED = request(0.32, finish_reason=None, error="HTTP 503", end_s=0.33, output_tokens=None)


def test_times_of_a_request() -> None:
    one = block(request())
    assert block_value("ttft_ms", one) == pytest.approx(100)
    assert block_value("tpot_ms", one) == pytest.approx(200 / 12)
    assert block_value("inter_chunk_ms", one) == pytest.approx(50)
    assert block_value("e2e_ms", one) == pytest.approx(320)


def test_rates_are_over_the_wall_time_of_all() -> None:
    two = block(request(), request(0.32))
    assert block_value("output_tokens_per_s", two) == pytest.approx(26 / 0.64)
    assert block_value("total_tokens_per_s", two) == pytest.approx(40 / 0.64)
    assert block_value("requests_per_s", two) == pytest.approx(2 / 0.64)


def test_failed_requests_never_help() -> None:
    with_failure = block(request(), FAILED)
    assert block_value("output_tokens_per_s", with_failure) == pytest.approx(13 / 0.33)
    assert block_value("error_rate", with_failure) == 0.5
    assert block_value("ttft_ms", with_failure) == pytest.approx(100)
    assert block_value("goodput_per_s", with_failure) == pytest.approx(1 / 0.33)


def test_a_partial_answer_that_failed_gives_no_tokens() -> None:
    cut = request(error="CUDA error", output_tokens=500)
    assert block_value("output_tokens_per_s", block(cut)) == 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"output_tokens": 1},
        {"chunk_s": (0.1,), "last_s": 0.1},
        {"chunk_s": (0.1, 0.1), "last_s": 0.1},
        {"chunk_s": (), "first_s": None, "last_s": None},
    ],
)
def test_answers_without_a_token_time(changes: dict[str, Any]) -> None:
    assert math.isnan(block_value("tpot_ms", block(request(**changes))))


def test_percentiles_are_over_requests() -> None:
    records = [request(n, first_s=n + 0.001 * (n + 1)) for n in range(100)]
    one = block(*records)
    expected = np.percentile(np.arange(1, 101), [50, 90, 95, 99])
    found = [block_value(f"ttft_p{p}_ms", one) for p in (50, 90, 95, 99)]
    assert found == pytest.approx(list(expected))


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        (None, 2),
        ({"ttft_ms": 150}, 1),
        ({"tpot_ms": 20}, 2),
        ({"tpot_ms": 10}, 0),
        ({"e2e_ms": 330, "ttft_ms": 150}, 1),
    ],
)
def test_goodput(limits: dict[str, float] | None, good: int) -> None:
    slow = request(0.32, first_s=0.52, chunk_s=(0.52, 0.72), last_s=0.72, end_s=0.73)
    both = block(request(), slow)
    config = LimitsConfig(**limits) if limits else None
    assert block_value("goodput_per_s", both, config) == pytest.approx(good / 0.73)


def test_the_steady_window_leaves_out_both_ramps() -> None:
    """Two in flight: sent at 0, 0, 1, 2, 3; the load is at its peak from 0 to 3."""
    records = [request(sent) for sent in (0.0, 0.0, 1.0, 2.0, 3.0)]
    steady = block(*records, load=C2, end_s=5.0)
    assert steady_window(steady) == (0.0, 3.0)
    assert block_value("steady_tokens_per_s", steady) == pytest.approx(4 * 13 / 3)
    assert steady_window(block(request(), request(), load=C2)) == (0.0, 0.32)


def test_names_units_and_directions() -> None:
    assert METRICS["output_tokens_per_s"].direction == "maximize"
    assert METRICS["ttft_p95_ms"].direction == "minimize"
    assert METRICS["ttft_p95_ms"].unit == "ms"
    assert all(metric.doc.strip() for metric in METRICS.values())
    names = {"tpot_p50_ms", "inter_chunk_p99_ms", "e2e_p90_ms", "acceptance_length", "error_rate"}
    assert names <= set(METRICS)
    with pytest.raises(KeyError):
        block_value("itl_ms", block(request()))


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=20))
def test_percentiles_are_ordered(times: list[float]) -> None:
    one = block(*(request(first_s=t, last_s=t + 1) for t in times))
    found = [block_value(f"ttft_p{p}_ms", one) for p in (50, 90, 95, 99)]
    assert found == sorted(found)
    assert 1000 * min(times) * 0.999 <= block_value("ttft_ms", one) <= 1000 * max(times) * 1.001


# ---- summaries ----------------------------------------------------------------------------------
def test_summaries_by_load_point_in_order() -> None:
    blocks = [block(request(), load=load, index=i) for load in (C2, C1) for i in range(3)]
    acceptance = Acceptance(2.5, 0.5, (0.6, 0.4), 10, 30, 15, "timings")
    measured = summarize(blocks, {C1: acceptance}, gpus=4)
    assert [summary.load for summary in measured.summaries] == [C2, C1]
    summary = measured.at(C1)
    assert (summary.requests, summary.errors) == (3, 0)
    assert summary.metrics["output_tokens_per_s"] == pytest.approx(13 / 0.32)
    assert summary.metrics["output_tokens_per_s_per_gpu"] == pytest.approx(13 / 0.32 / 4)
    assert summary.metrics["acceptance_length"] == 2.5
    assert summary.metrics["acceptance_rate"] == 0.5
    assert summary.per_block["ttft_ms"] == pytest.approx((100, 100, 100))
    assert "acceptance_length" not in measured.at(C2).metrics
    with pytest.raises(KeyError):
        measured.at(LoadPoint(concurrency=64))


def test_client_bound_blocks_do_not_count() -> None:
    good = block(request())
    bound = block(request(end_s=10), is_client_bound=True, notes=("client bound: busy",))
    assert math.isnan(block_value("e2e_ms", bound))
    measured = summarize([good, bound])
    assert measured.at(C1).metrics["e2e_ms"] == pytest.approx(320)
    assert measured.at(C1).per_block["e2e_ms"][0] == pytest.approx(320)
    assert math.isnan(measured.at(C1).per_block["e2e_ms"][1])
    assert "c1: block 0: client bound: busy" in measured.warnings


def test_nothing_finite_is_left_out() -> None:
    measured = summarize([block(FAILED)])
    assert "ttft_ms" not in measured.at(C1).metrics
    assert "ttft_ms" not in measured.at(C1).per_block
    assert measured.at(C1).metrics["error_rate"] == 1.0
    assert summarize([]).summaries == ()
