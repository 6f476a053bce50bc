"""Servers that mislead whoever measures them: each is refused, or seen for what it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tuner.config.workload import TimeoutsConfig
from tuner.errors import FailureKind, TrialFailure
from tuner.measure.checks import check_measurement
from tuner.measure.client import LoadClient
from tuner.measure.fidelity import compare_outputs, verdict
from tuner.measure.metrics import block_value, summarize
from tuner.measure.prompts import Workload
from tuner.measure.records import Block, LoadPoint, Measurement, Prompt, Sampling
from tuner.measure.wire import openai_chat
from tuner.server.process import ServerProcess

Start = Callable[..., ServerProcess]
Measure = Callable[..., Measurement]

C1, C8 = LoadPoint(concurrency=1), LoadPoint(concurrency=8)


def prompts(count: int) -> tuple[Prompt, ...]:
    return tuple(
        Prompt(f"p{n}", ({"role": "user", "content": f"Tell me about city {n}."},), "chat")
        for n in range(count)
    )


def workload(**changes: Any) -> Workload:
    plain = Workload(
        blocks=(prompts(8),),
        held_out_blocks=(),
        warm_up_prompts=prompts(2),
        loads=(C1,),
        sampling=Sampling(max_tokens=24),
        cache="keep",
    )
    return replace(plain, **changes)


@pytest.fixture
def client(fake_server: Start) -> Iterator[Callable[..., LoadClient]]:
    """A load client on a fresh fake server of the given behaviour."""
    clients: list[LoadClient] = []

    def start(behaviour: dict[str, Any], **changes: Any) -> LoadClient:
        server = fake_server(behaviour)

        def gone() -> str | None:
            return None if server.poll() is None else server.exit_reason()

        wire = openai_chat("fake", extra_keys=["timings"])
        clients.append(LoadClient(server.base_url, wire, workload(**changes), alive=gone))
        return clients[-1]

    yield start
    for each in clients:
        each.__exit__(None, None, None)


@pytest.fixture
def block(client: Callable[..., LoadClient]) -> Callable[..., Block]:
    """One measured block of a fresh fake server."""

    def run(
        behaviour: dict[str, Any], count: int = 8, load: LoadPoint = C1, **changes: Any
    ) -> Block:
        return measured(client(behaviour, **changes), 0, count, load)

    return run


def measured(client: LoadClient, index: int, count: int, load: LoadPoint = C1) -> Block:
    """A block whose judgement is about the server: a busy test machine is not the subject."""
    return replace(client.run_block(index, prompts(count), load), is_client_bound=False)


def refused(measurement: Measurement) -> TrialFailure:
    with pytest.raises(TrialFailure) as caught:
        check_measurement(measurement)
    return caught.value


def complaints(found: Block) -> list[str]:
    """Warnings about counts; others may come from a busy machine."""
    return [text for text in check_measurement(summarize([found])) if "usage" in text]


# ---- counts -------------------------------------------------------------------------------------
@pytest.mark.parametrize("usage", ["last", "empty"])
@pytest.mark.parametrize("per_chunk", [None, 3])
def test_tokens_are_the_servers_count(
    block: Callable[..., Block], usage: str, per_chunk: int | None
) -> None:
    """Bursts of tokens; usage beside the finish reason or in a chunk of its own."""
    found = block({"usage": usage, "tokens_per_chunk": per_chunk, "answer_tokens": 12}, 4)
    assert [record.output_tokens for record in found.records] == [12] * 4
    chunks = len(found.records[0].chunk_s)
    assert chunks == (4 if per_chunk else 12)
    assert not complaints(found)


def test_missing_usage_is_refused(block: Callable[..., Block]) -> None:
    failure = refused(summarize([block({"usage": "missing"}, 2)]))
    assert failure.kind is FailureKind.REQUEST_ERRORS
    assert failure.reason == "2 of 2 requests failed at c1: the server reported no usage"


def test_a_small_surplus_of_usage_is_tolerated(block: Callable[..., Block]) -> None:
    found = block({"usage_offset": 3, "answer_tokens": 20}, 3)
    assert [record.output_tokens for record in found.records] == [23] * 3
    assert not complaints(found)


def test_clocks_of_the_server_are_not_used(block: Callable[..., Block]) -> None:
    found = block({"nan_timings": True}, 3)
    assert not complaints(found)
    assert block_value("tpot_ms", found) > 0


# ---- errors -------------------------------------------------------------------------------------
def test_half_of_the_requests_failing_fast_do_not_help(block: Callable[..., Block]) -> None:
    healthy = block({"step_ms": 4, "answer_tokens": 20})
    failing = block({"step_ms": 4, "answer_tokens": 20, "reject_share": 0.5}, 24)
    failure = refused(summarize([failing]))
    assert failure.kind is FailureKind.REQUEST_ERRORS
    assert "requests failed at c1: HTTP 503" in failure.reason
    ratio = block_value("output_tokens_per_s", failing) / block_value(
        "output_tokens_per_s", healthy
    )
    assert ratio < 1.3


def test_an_error_inside_a_stream_is_an_error(block: Callable[..., Block]) -> None:
    found = block({"error_after_tokens": 5}, 2)
    assert not any(record.ok for record in found.records)
    assert block_value("output_tokens_per_s", found) == 0.0
    assert refused(summarize([found])).kind is FailureKind.REQUEST_ERRORS


def test_json_instead_of_a_stream_is_an_error(client: Callable[..., LoadClient]) -> None:
    """The server is asked for another route, which answers 200 with {"detail": …}."""
    plain = client({})
    plain._server = replace(plain._server, wire=replace(openai_chat("fake"), path="/nothing"))
    record = plain.run_block(0, prompts(1), C1).records[0]
    assert not record.ok
    assert record.error.startswith(("HTTP 404", "answered without a stream"))


# ---- standing still, dying ----------------------------------------------------------------------
def cut_short(client: LoadClient, load: LoadPoint = C1) -> tuple[TrialFailure, float]:
    start = time.perf_counter()
    with pytest.raises(TrialFailure) as caught:
        client.run_block(0, prompts(16), load)
    assert client.partial_block is not None
    return caught.value, time.perf_counter() - start


def test_a_healthy_but_silent_server_is_stalled(client: Callable[..., LoadClient]) -> None:
    patient = TimeoutsConfig(first_token=1.0)
    failure, seconds = cut_short(client({"silent_after": 6}, timeouts=patient))
    assert failure.kind is FailureKind.STALLED
    assert seconds < 6


def test_a_server_that_dies_under_load_has_died(client: Callable[..., LoadClient]) -> None:
    dying = client({"die_at_concurrency": 8, "ttft_ms": 300})
    failure, seconds = cut_short(dying, C8)
    assert failure.kind is FailureKind.DIED
    assert seconds < 4


# ---- speeds that change -------------------------------------------------------------------------
def test_throughput_that_falls_is_reported(block: Callable[..., Block]) -> None:
    slowing = {"step_ms": 8, "answer_tokens": 16, "slow_from": 15, "slow_after_factor": 6.0}
    warnings = check_measurement(summarize([block(slowing, 30)]))
    assert any("slower" in text or "two groups" in text for text in warnings)


def test_repeats_that_come_from_a_cache_are_prevented(client: Callable[..., LoadClient]) -> None:
    cached = {"ttft_ms": 60, "cache_speedup": 10.0, "answer_tokens": 4}
    repeated, unique = client(cached), client(cached, cache="unique")
    fast = [repeated.run_block(n, prompts(3), C1) for n in range(2)][1]
    slow = [unique.run_block(n, prompts(3), C1) for n in range(2)][1]
    assert block_value("ttft_ms", slow) > 55
    assert block_value("ttft_ms", fast) < 0.8 * block_value("ttft_ms", slow)


def test_more_cache_hits_than_the_baseline_are_told(client: Callable[..., LoadClient]) -> None:
    cached = {"cache_speedup": 10.0, "answer_tokens": 4}
    first = client(cached)
    baseline = summarize([measured(first, 0, 3)])
    again = summarize([measured(first, 0, 3)])
    warnings = check_measurement(again, baseline)
    assert any("came from the cache" in text for text in warnings)


# ---- answers that change ------------------------------------------------------------------------
def test_late_flips_are_the_machines_noise(block: Callable[..., Block]) -> None:
    flipping = {"flip_share": 0.2, "step_ms": 0}
    launches = [block(flipping, 16).records for _ in range(3)]
    control = compare_outputs(launches[0], launches[1])
    assert control.share < 1.0
    assert verdict(compare_outputs(launches[0], launches[2]), control).ok


def test_garbage_is_a_mismatch_however_fast(block: Callable[..., Block]) -> None:
    honest = [block({"step_ms": 0}, 12).records for _ in range(2)]
    garbage = block({"step_ms": 0, "garbage": True}, 12).records
    control = compare_outputs(honest[0], honest[1])
    found = verdict(compare_outputs(honest[0], garbage), control)
    assert control.share == 1.0
    assert not found.ok
    assert "speculation changes the answers" in found.text
