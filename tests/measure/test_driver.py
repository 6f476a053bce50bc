"""A server that stops moving, or dies, ends a block within a bounded time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tuner.config.workload import TimeoutsConfig
from tuner.errors import FailureKind, TrialFailure
from tuner.measure.driver import Lateness
from tuner.measure.records import LoadPoint

C1, C4 = LoadPoint(concurrency=1), LoadPoint(concurrency=4)


def ok(answer: Any) -> None:
    answer.head()
    answer.text("one", finish="stop")
    answer.usage(1)
    answer.done()


def stalled(client: Any, prompts: Any, load: LoadPoint = C1) -> tuple[TrialFailure, float]:
    start = time.perf_counter()
    with pytest.raises(TrialFailure) as caught:
        client.run_block(0, prompts(4), load)
    return caught.value, time.perf_counter() - start


def silent(answer: Any) -> None:
    answer.head()
    answer.event({"choices": [{"delta": {"role": "assistant"}}]})
    answer.wait(30)


def falls_silent(answer: Any) -> None:
    answer.head()
    answer.text("one")
    answer.wait(30)


def endless(answer: Any) -> None:
    answer.head()
    while not answer.stop.is_set():
        answer.text("more ")
        answer.wait(0.02)


@pytest.mark.parametrize(
    ("script", "patience", "reason"),
    [
        (silent, {"first_token": 0.3}, "the first token of a request took longer than 0.3 s"),
        (falls_silent, {"between_chunks": 0.3}, "the next chunk of an answer took longer than"),
        (endless, {"request": 0.3}, "a request took longer than 0.3 s"),
        (endless, {"block": 0.3}, "the block took longer than 0.3 s"),
    ],
)
def test_stalls(
    serve: Any,
    connect: Any,
    prompts: Any,
    script: Any,
    patience: dict[str, float],
    reason: str,
) -> None:
    client = connect(serve(script), timeouts=TimeoutsConfig(**patience))
    failure, seconds = stalled(client, prompts)
    assert failure.kind is FailureKind.STALLED
    assert failure.reason.startswith(reason)
    assert 0.3 <= seconds < 1.5


def test_a_role_chunk_does_not_shorten_the_patience_for_the_first_token(
    serve: Any, connect: Any, prompts: Any
) -> None:
    def slow_first(answer: Any) -> None:
        answer.head()
        answer.event({"choices": [{"delta": {"role": "assistant"}}]})
        answer.wait(0.4)
        answer.text("one", finish="stop")
        answer.usage(1)
        answer.done()

    timeouts = TimeoutsConfig(first_token=5.0, between_chunks=0.2)
    client = connect(serve(slow_first), timeouts=timeouts)
    assert client.run_block(0, prompts(1), C1).records[0].ok


def test_what_a_cut_block_saw_is_kept(serve: Any, connect: Any, prompts: Any) -> None:
    def script(answer: Any) -> None:
        if "number 2" in answer.body["messages"][0]["content"]:
            falls_silent(answer)
        ok(answer)

    client = connect(serve(script), timeouts=TimeoutsConfig(between_chunks=0.3))
    stalled(client, prompts)
    assert client.partial_block is not None
    done, cut = client.partial_block.records[:2], client.partial_block.records[2]
    assert all(record.ok for record in done)
    assert (cut.prompt_id, cut.text, cut.ok) == ("p2", "one", False)
    assert cut.error.startswith("the next chunk of an answer")
    client.run_block(0, prompts(2), C1)
    assert client.partial_block is None


def test_death_is_noticed_within_a_second(serve: Any, connect: Any, prompts: Any) -> None:
    born = time.perf_counter()

    def alive() -> str | None:
        return "exit code 1: killed" if time.perf_counter() - born > 0.3 else None

    failure, seconds = stalled(connect(serve(falls_silent), alive=alive), prompts)
    assert (failure.kind, failure.reason) == (FailureKind.DIED, "exit code 1: killed")
    assert seconds < 1.3


def test_broken_connections_wait_for_the_news_of_death(
    serve: Any, connect: Any, prompts: Any
) -> None:
    """Connections break before the process is seen as dead: the block must not count as done."""
    server = serve(ok)
    asked: list[float] = []

    def alive() -> str | None:
        asked.append(time.perf_counter())
        return "exit code -9" if len(asked) > 3 else None

    client = connect(server, alive=alive)
    server.close()
    failure, seconds = stalled(client, prompts, C4)
    assert failure.kind is FailureKind.DIED
    assert seconds < 1.3


def test_a_server_that_refuses_but_lives_gives_errors(
    serve: Any, connect: Any, prompts: Any
) -> None:
    server = serve(ok)
    client = connect(server)
    server.close()
    block = client.run_block(0, prompts(3), C1)
    assert len(block.records) == 3
    assert not any(record.ok for record in block.records)
    assert "could not be sent" in block.records[0].error or "broke" in block.records[0].error


def test_an_answer_whose_connection_lingers_ends_at_done(
    serve: Any, connect: Any, prompts: Any
) -> None:
    def script(answer: Any) -> None:
        answer.head()
        answer.text("one", finish="stop")
        answer.usage(1)
        answer.chunk(b"data: [DONE]\n\n")
        answer.wait(20)

    start = time.perf_counter()
    record = connect(serve(script)).run_block(0, prompts(1), C1).records[0]
    assert record.ok
    assert record.end_s - record.sent_s < 0.2
    assert time.perf_counter() - start < 2


def test_large_requests_are_sent_in_parts(serve: Any, connect: Any, prompts: Any) -> None:
    server = serve(ok)
    big = tuple(
        type(p)(p.id, ({"role": "user", "content": "word " * 400_000},)) for p in prompts(2)
    )
    block = connect(server).run_block(0, big, LoadPoint(concurrency=2))
    assert all(record.ok for record in block.records)
    assert len(server.bodies[0]["messages"][0]["content"]) == 2_000_000


def test_interruption_keeps_what_was_seen(serve: Any, connect: Any, prompts: Any) -> None:
    def alive() -> str | None:
        raise KeyboardInterrupt

    client = connect(serve(falls_silent), alive=alive)
    with pytest.raises(KeyboardInterrupt):
        client.run_block(0, prompts(1), C1)
    assert client.partial_block is not None
    assert client.partial_block.records[0].error == "given up"


def test_lateness_is_a_mean() -> None:
    lateness = Lateness()
    assert lateness.mean_s == 0.0
    for seconds in (0.1, 0.3, -0.2):
        lateness.add(seconds)
    assert lateness.mean_s == pytest.approx(0.4 / 3)
