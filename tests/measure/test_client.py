"""A running server is measured: what is sent, what is recorded, what counts as an error."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import pytest

from tuner.measure.connection import Address
from tuner.measure.metrics import summarize
from tuner.measure.records import LoadPoint, Sampling
from tuner.measure.wire import Delta, openai_chat

C1, C2, C4 = (LoadPoint(concurrency=n) for n in (1, 2, 4))


def answer_ok(answer: Any) -> None:
    answer.head()
    answer.text("one ")
    answer.text("two", finish="stop")
    answer.usage(7, prompt=12, cached=4)
    answer.done()


def run_one(serve: Any, connect: Any, prompts: Any, script: Any, **changes: Any) -> Any:
    client = connect(serve(script), **changes)
    return client.run_block(0, prompts(1), C1).records[0]


def test_a_complete_answer(serve: Any, connect: Any, prompts: Any) -> None:
    record = run_one(serve, connect, prompts, answer_ok)
    assert record.ok
    assert (record.prompt_id, record.category) == ("p0", "qa")
    assert (record.prompt_tokens, record.output_tokens, record.cached_tokens) == (12, 7, 4)
    assert (record.text, record.finish_reason, record.error) == ("one two", "stop", "")
    assert len(record.chunk_s) == 2
    assert record.scheduled_s <= record.sent_s < record.first_s <= record.last_s <= record.end_s


def test_times_are_the_servers(serve: Any, connect: Any, prompts: Any) -> None:
    def script(answer: Any) -> None:
        answer.wait(0.08)
        answer.head()
        answer.text("a")
        answer.wait(0.12)
        answer.text("b", finish="stop")
        answer.usage(5)
        answer.done()

    record = run_one(serve, connect, prompts, script)
    assert record.first_s - record.sent_s >= 0.08
    assert record.last_s - record.sent_s >= 0.2
    assert record.last_s - record.first_s > 0.05


def test_the_role_chunk_is_not_the_first_token(serve: Any, connect: Any, prompts: Any) -> None:
    def script(answer: Any) -> None:
        answer.head()
        answer.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        answer.wait(0.1)
        answer.text("late", finish="stop")
        answer.usage(1)
        answer.done()

    record = run_one(serve, connect, prompts, script)
    assert record.first_s - record.sent_s >= 0.1
    assert len(record.chunk_s) == 1


def test_bodies_and_closed_loop(serve: Any, connect: Any, prompts: Any) -> None:
    def script(answer: Any) -> None:
        answer.wait(0.02)
        answer_ok(answer)

    server = serve(script)
    block = connect(server).run_block(3, prompts(10), C2)
    asked = {body["messages"][0]["content"] for body in server.bodies}
    assert asked == {f"Question number {n}?" for n in range(10)}
    assert server.peak == block.peak_in_flight == 2
    assert server.connections == 2
    assert (block.index, block.load, len(block.records)) == (3, C2, 10)
    assert [record.prompt_id for record in block.records] == [f"p{n}" for n in range(10)]
    assert block.start_s <= block.records[0].sent_s
    assert block.end_s == max(record.end_s for record in block.records)


def test_a_block_smaller_than_the_concurrency_is_repeated(
    serve: Any, connect: Any, prompts: Any
) -> None:
    server = serve(answer_ok)
    block = connect(server, cache="unique").run_block(0, prompts(3), C4)
    assert [record.prompt_id for record in block.records] == ["p0", "p1", "p2", "p0"]
    assert block.notes[0] == "3 prompts were repeated to reach c4"
    sent = [body["messages"][0]["content"] for body in server.bodies]
    assert len(set(sent)) == 4


def test_progress_ends_with_the_total(serve: Any, connect: Any, prompts: Any) -> None:
    seen: list[tuple[int, int, int]] = []
    client = connect(serve(answer_ok))
    client.run_block(0, prompts(5), C2, on_progress=lambda *counts: seen.append(counts))
    assert seen[0] == (1, 5, 0)
    assert seen[-1] == (5, 5, 0)


def test_open_loop_keeps_its_arrivals(serve: Any, connect: Any, prompts: Any) -> None:
    load = LoadPoint(rate=50.0, arrivals="constant")
    block = connect(serve(answer_ok)).run_block(0, prompts(5), load)
    due = [record.scheduled_s - block.start_s for record in block.records]
    assert due == pytest.approx([0.0, 0.02, 0.04, 0.06, 0.08])
    assert all(record.sent_s >= record.scheduled_s for record in block.records)


def test_poisson_arrivals_are_the_same_for_every_server(
    serve: Any, connect: Any, prompts: Any
) -> None:
    load = LoadPoint(rate=200.0)
    blocks = [connect(serve(answer_ok)).run_block(2, prompts(6), load) for _ in range(2)]
    first, second = ([r.scheduled_s - b.start_s for r in b.records] for b in blocks)
    assert first == pytest.approx(second)
    assert len(set(first)) == 6


def test_a_trace_is_continued_from_block_to_block(serve: Any, connect: Any, prompts: Any) -> None:
    trace = (0.0, 0.01, 0.03, 0.06, 0.10)
    client = connect(serve(answer_ok), traces={"t": trace})
    blocks = [client.run_block(index, prompts(2), LoadPoint(trace="t")) for index in (0, 1)]
    gaps = [block.records[1].scheduled_s - block.records[0].scheduled_s for block in blocks]
    assert gaps == pytest.approx([0.01, 0.03])


def test_connecting_is_no_part_of_the_time_to_first_token(
    serve: Any, connect: Any, prompts: Any
) -> None:
    """Sixteen connections at once: each request counts from its own bytes, not from the start."""
    arrivals: list[float] = []

    def script(answer: Any) -> None:
        arrivals.append(time.perf_counter())
        answer_ok(answer)

    block = connect(serve(script)).run_block(0, prompts(16), LoadPoint(concurrency=16))
    sent = sorted(record.sent_s for record in block.records)
    assert all(at < arrived for at, arrived in zip(sent, sorted(arrivals), strict=True))
    assert all(r.scheduled_s < r.sent_s < (r.first_s or 0.0) for r in block.records)


# ---- answers that are errors --------------------------------------------------------------------
def no_usage(answer: Any) -> None:
    answer.head()
    answer.text("one two three", finish="stop")
    answer.done()


def error_in_stream(answer: Any) -> None:
    answer.head()
    answer.text("one")
    answer.event({"error": {"message": "CUDA error"}})
    answer.done()


def truncated(answer: Any) -> None:
    answer.head()
    answer.text("one")
    raise ConnectionAbortedError


def no_finish(answer: Any) -> None:
    answer.head()
    answer.text("one")
    answer.usage(1)
    answer.done()


def aborted(answer: Any) -> None:
    answer.head()
    answer.text("one", finish="abort")
    answer.usage(1)
    answer.done()


def not_json(answer: Any) -> None:
    answer.head()
    answer.chunk(b"data: {broken\n\n")
    answer.done()


def a_list(answer: Any) -> None:
    answer.head()
    answer.chunk(b"data: [1, 2]\n\n")
    answer.done()


def test_a_connection_closed_between_requests_is_opened_again(
    serve: Any, connect: Any, prompts: Any
) -> None:
    """llama.cpp's HTTP library closes a kept-alive connection after some answers, unannounced."""

    seen = itertools.count()

    def closes_at_every_second_request(answer: Any) -> None:
        if next(seen) % 2:
            raise ConnectionAbortedError
        answer_ok(answer)

    server = serve(closes_at_every_second_request)
    block = connect(server).run_block(0, prompts(6), LoadPoint(concurrency=1))
    assert [record.error for record in block.records] == [""] * 6
    assert [record.output_tokens for record in block.records] == [7] * 6
    assert server.connections == 6


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (no_usage, "the server reported no usage"),
        (error_in_stream, "CUDA error"),
        (truncated, "the connection was closed before the answer ended"),
        (no_finish, "the answer ended without a finish reason"),
        (aborted, "finish reason abort"),
        (not_json, "an event could not be read"),
        (a_list, "an event could not be read"),
        (lambda a: a.status(503, '{"error": {"message": "busy"}}'), "HTTP 503: busy"),
        (lambda a: a.status(404, "nothing here", "text/html"), "HTTP 404: nothing here"),
        (lambda a: a.status(200, '{"detail": "Not Found"}'), "answered without a stream: Not"),
        (lambda a: a.raw(b"what?\r\n\r\n"), "no HTTP/1.1 answer"),
    ],
)
def test_failed_requests_are_recorded(
    serve: Any, connect: Any, prompts: Any, script: Any, error: str
) -> None:
    record = run_one(serve, connect, prompts, script)
    assert not record.ok
    assert record.error.startswith(error)


def test_missing_usage_may_be_counted(serve: Any, connect: Any, prompts: Any) -> None:
    record = run_one(
        serve, connect, prompts, no_usage, count_tokens=lambda text: len(text.split())
    )
    assert record.ok
    assert record.output_tokens == 3
    assert record.extra["tokens_counted_locally"] is True


def test_the_maximum_is_never_taken_for_a_count(serve: Any, connect: Any, prompts: Any) -> None:
    def script(answer: Any) -> None:
        answer.head()
        answer.text("short", finish="stop")
        answer.usage(1)
        answer.event({"choices": []})
        answer.done()

    assert run_one(serve, connect, prompts, script).output_tokens == 1


def test_server_clocks_that_are_nan_do_no_harm(serve: Any, connect: Any, prompts: Any) -> None:
    def script(answer: Any) -> None:
        answer.head()
        answer.text("one", finish="stop")
        answer.chunk(
            b'data: {"choices": [], "usage": {"completion_tokens": 3}, '
            b'"timings": {"predicted_ms": NaN, "prompt_ms": 0}}\n\n'
        )
        answer.done()

    wire = openai_chat("m", extra_keys=["timings"])
    record = run_one(serve, connect, prompts, script, wire=wire)
    assert record.ok
    assert record.output_tokens == 3
    assert record.extra["timings"]["prompt_ms"] == 0


def test_cumulative_text(serve: Any, connect: Any, prompts: Any) -> None:
    wire = replace(
        openai_chat("m"),
        parse=lambda event: Delta(
            text_so_far=event["text"],
            output_tokens=event.get("n"),
            finish_reason=event.get("finish"),
        ),
    )

    def script(answer: Any) -> None:
        answer.head()
        for text in ("", "one", "one two", "one two"):
            answer.event({"text": text})
        answer.event({"text": "one two three", "n": 3, "finish": "stop"})
        answer.done()

    record = run_one(serve, connect, prompts, script, wire=wire)
    assert record.text == "one two three"
    assert len(record.chunk_s) == 3


def test_a_connection_the_server_closed_meanwhile_is_no_error(
    serve: Any, connect: Any, prompts: Any
) -> None:
    def script(answer: Any) -> None:
        answer_ok(answer)
        raise ConnectionAbortedError

    server = serve(script)
    block = connect(server).run_block(0, prompts(4), C1)
    assert all(record.ok for record in block.records)
    assert server.connections == 4


def test_answers_that_end_with_the_connection(serve: Any, connect: Any, prompts: Any) -> None:
    def script(answer: Any) -> None:
        answer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        answer.raw(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
        answer.raw(b'data: {"choices": [{"finish_reason": "stop"}], ')
        answer.raw(b'"usage": {"completion_tokens": 1}}\n\n')
        raise ConnectionAbortedError

    record = run_one(serve, connect, prompts, script)
    assert record.ok
    assert record.output_tokens == 1


# ---- the client itself --------------------------------------------------------------------------
def test_a_client_that_is_the_bottleneck_says_so(serve: Any, connect: Any, prompts: Any) -> None:
    plain = openai_chat("m")

    def laborious(event: Any) -> Delta:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        return plain.parse(event)

    client = connect(serve(answer_ok), wire=replace(plain, parse=laborious))
    block = client.run_block(0, prompts(2), C1)
    assert block.is_client_bound
    assert block.client_cpu_s >= 0.3
    assert block.notes[0].startswith("client bound: the client was busy")


def test_figures_agree_with_a_server_that_knows_its_own_timings(
    connect_url: Any, timed_server: Any, prompts: Any
) -> None:
    """Sixteen streams; the server wrote down when each chunk really left."""
    client = connect_url(timed_server.url, sampling=Sampling(max_tokens=90))
    load = LoadPoint(concurrency=16)
    timed_server.truth()
    metrics = summarize([client.run_block(0, prompts(48), load)]).at(load).metrics
    truth = timed_server.truth()
    assert truth["requests"] == 48
    for name in ("output_tokens_per_s", "tpot_ms", "e2e_ms"):
        assert metrics[name] == pytest.approx(truth[name], rel=0.05)
    assert metrics["ttft_ms"] == pytest.approx(truth["ttft_ms"], abs=15)


# ---- warm-up and pages --------------------------------------------------------------------------
def test_warm_up_stops_when_two_rounds_agree(serve: Any, connect: Any, prompts: Any) -> None:
    def script(answer: Any) -> None:
        answer.wait(0.05)
        answer_ok(answer)

    server = serve(script)
    seconds = connect(server).warm_up(prompts(4), C1)
    assert seconds >= 0.2
    assert len(server.bodies) in (4, 6)


def test_warm_up_of_a_large_load_is_one_round(serve: Any, connect: Any, prompts: Any) -> None:
    server = serve(answer_ok)
    connect(server).warm_up(prompts(4), LoadPoint(concurrency=20))
    assert len(server.bodies) == 20


def test_warm_up_of_a_given_size(serve: Any, connect: Any, prompts: Any) -> None:
    server = serve(answer_ok)
    client = connect(server, warm_up=5)
    client.warm_up(prompts(2), C2)
    assert len(server.bodies) == 5
    assert connect(server, warm_up=0).warm_up(prompts(2), C2) < 1
    assert len(server.bodies) == 5


def test_unique_openings_differ_by_occasion_but_not_by_launch(
    serve: Any, connect: Any, prompts: Any
) -> None:
    server = serve(answer_ok)
    for _ in range(2):
        client = connect(server, cache="unique")
        client.run_block(0, prompts(2), C1)
        client.run_block(1, prompts(2), C1)
    sent = [body["messages"][0]["content"] for body in server.bodies]
    assert sent[:4] == sent[4:]
    assert len(set(sent)) == 4
    assert all(text.endswith(f"Question number {n % 2}?") for n, text in enumerate(sent))


def test_auto_cache_mode(serve: Any, connect: Any) -> None:
    server = serve(answer_ok)
    off = openai_chat("m", disables_cache=True)
    assert connect(server, cache="auto").cache_mode == "unique"
    assert connect(server, cache="auto", wire=off).cache_mode == "off"
    assert connect(server, cache="flush", wire=off).cache_mode == "flush"


def test_pages(serve: Any, connect: Any) -> None:
    client = connect(serve(lambda answer: answer.status(200, "a 1\n", "text/plain")))
    assert client.get_text("/metrics") == "a 1\n"
    assert client.snapshot(["/metrics"]).texts == {"/metrics": "a 1\n"}
    assert client.post("/flush_cache") == 200


def test_pages_that_do_not_answer(serve: Any, connect: Any) -> None:
    server = serve(lambda answer: answer.status(501, "{}"))
    client = connect(server)
    assert client.get_text("/metrics") is None
    assert client.snapshot(["/metrics", "/other"]).texts == {}
    assert client.post("/flush_cache") == 501
    server.close()
    assert client.get_text("/metrics") is None
    assert client.post("/flush_cache") == 0


def test_address_must_be_http() -> None:
    assert Address.parse("http://127.0.0.1:80/v2/") == Address("127.0.0.1", 80, "/v2")
    with pytest.raises(ValueError, match="must be http://host:port, got"):
        Address.parse("https://example.org")
