"""What clients of the fake server see, request by request, healthy and not."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tuner.engines.prometheus import parse_metrics
from tuner.server.process import ServerProcess

Start = Callable[..., ServerProcess]


def request(method: str, server: ServerProcess, path: str, body: Any = None) -> httpx.Response:
    with httpx.Client(base_url=server.base_url, trust_env=False, verify=False) as client:
        return client.request(method, path, json=body, timeout=20)


def get(server: ServerProcess, path: str) -> httpx.Response:
    return request("GET", server, path)


def ask(server: ServerProcess, prompt: str = "hello there", **body: Any) -> httpx.Response:
    message = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 200, **body}
    return request("POST", server, "/v1/chat/completions", message)


def stream(server: ServerProcess, prompt: str = "hello there", **body: Any) -> list[Any]:
    """The JSON events of a streamed answer."""
    options = {"stream": True, "stream_options": {"include_usage": True}, **body}
    lines = ask(server, prompt, **options).text.splitlines()
    events = [line[6:] for line in lines if line.startswith("data: ")]
    assert events[-1] == "[DONE]" or "error" in events[-1]
    return [json.loads(event) for event in events if event != "[DONE]"]


def text_of(events: list[Any]) -> str:
    choices = [event["choices"][0] for event in events if event.get("choices")]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def truths(server: ServerProcess) -> list[Any]:
    return list(get(server, "/truth").json()["requests"])


def test_streamed_and_whole_answers_agree(fake_server: Start) -> None:
    server = fake_server({"answer_tokens": 20}, {"spec-steps": 3})
    events = stream(server)
    whole = ask(server).json()
    assert text_of(events) == whole["choices"][0]["message"]["content"]
    assert len(text_of(events).split()) == 20
    usage, timings = events[-1]["usage"], events[-1]["timings"]
    assert events[-1]["choices"] == []
    assert usage["completion_tokens"] == timings["predicted_n"] == 20
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


def test_counts_agree_in_timings_metrics_and_truth(fake_server: Start) -> None:
    server = fake_server({"answer_tokens": 60}, {"spec-steps": 3})
    before = truths(server)
    timings = stream(server)[-1]["timings"]
    last = truths(server)[-1]
    assert len(truths(server)) == len(before) + 1
    assert timings["draft_n"] == last["drafted"] == 3 * last["steps"]
    assert timings["draft_n_accepted"] == last["accepted"]
    assert last["steps"] + last["accepted"] == last["output_tokens"] == 60
    page = dict(
        line.rsplit(" ", 1) for line in get(server, "/metrics").text.splitlines() if line[0] != "#"
    )
    every = truths(server)
    assert int(page["fake:spec_decode_num_drafts_total"]) == sum(t["steps"] for t in every)
    accepted = sum(t["accepted"] for t in every)
    assert int(page["fake:spec_decode_num_accepted_tokens_total"]) == accepted
    positions = [int(v) for k, v in page.items() if "per_pos" in k]
    assert sum(positions) == accepted
    assert positions == sorted(positions, reverse=True)


def test_without_drafting_nothing_is_said_about_it(fake_server: Start) -> None:
    server = fake_server()
    assert "draft_n" not in stream(server)[-1]["timings"]
    assert "spec_decode" not in get(server, "/metrics").text


def test_drafts_never_accepted_are_counted(fake_server: Start) -> None:
    server = fake_server({"acceptance": [0.0]}, {"spec-steps": 2})
    timings = stream(server)[-1]["timings"]
    assert timings["draft_n"] > 0
    assert timings["draft_n_accepted"] == 0


def test_true_timings_are_kept(fake_server: Start) -> None:
    server = fake_server({"ttft_ms": 60, "step_ms": 10, "answer_tokens": 11})
    sent = time.perf_counter()
    stream(server)
    received = time.perf_counter()
    last = truths(server)[-1]
    assert sent <= last["arrived_s"] <= last["first_s"] <= last["last_s"] <= received
    assert 0.060 <= last["first_s"] - last["arrived_s"] < 0.5
    assert 0.160 <= last["last_s"] - last["arrived_s"] < 1.5  # steps are due in absolute time
    assert len(last["chunk_s"]) == 11


def test_tokens_per_chunk_are_merged(fake_server: Start) -> None:
    server = fake_server({"answer_tokens": 10, "tokens_per_chunk": 3})
    events = stream(server)
    sizes = [len(text_of([event]).split()) for event in events]
    assert [size for size in sizes if size] == [3, 3, 3, 1]


def test_a_repeated_prompt_is_cached_until_flushed(fake_server: Start) -> None:
    server = fake_server({"cache_speedup": 5, "ttft_ms": 100, "step_ms": 0})
    cached = []
    for path in ("", "", "/flush_cache"):
        if path:
            request("POST", server, path)
        stream(server)
        cached.append(truths(server)[-1]["cached_tokens"])
    assert cached == [0, 1, 0]
    cold, warm = (t["first_s"] - t["arrived_s"] for t in truths(server)[1:3])
    assert warm < cold
    usage = stream(server, "hello there", cache_prompt=False)[-1]["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize(
    ("behaviour", "place"),
    [({"usage": "empty"}, -1), ({"usage": "last"}, -1), ({"usage": "missing"}, None)],
)
def test_usage_comes_where_servers_put_it(
    fake_server: Start, behaviour: dict[str, Any], place: int | None
) -> None:
    events = stream(fake_server({**behaviour, "answer_tokens": 5}))
    holders = [event for event in events if "usage" in event]
    assert holders == ([] if place is None else [events[place]])
    if behaviour["usage"] == "last":
        assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_reports_that_are_off(fake_server: Start) -> None:
    server = fake_server({"usage_offset": 3, "answer_tokens": 37, "nan_timings": True})
    last = stream(server)[-1]
    assert last["usage"]["completion_tokens"] == 40
    assert math.isnan(last["timings"]["predicted_ms"])
    assert truths(server)[-1]["output_tokens"] == 37


def test_an_error_inside_a_good_stream(fake_server: Start) -> None:
    server = fake_server({"error_after_tokens": 5, "answer_tokens": 50})
    answer = ask(server, stream=True)
    assert answer.status_code == 200
    assert '"error"' in answer.text
    assert "[DONE]" not in answer.text
    assert truths(server)[-1]["outcome"] == "broken"


def test_half_of_the_requests_are_refused(fake_server: Start) -> None:
    server = fake_server({"reject_share": 0.5, "answer_tokens": 1}, ready=False)
    while "listening" not in server.log_tail():
        time.sleep(0.01)
    codes = [ask(server).status_code for _ in range(60)]
    assert 15 < codes.count(503) < 45
    assert set(codes) == {200, 503}


def test_cumulative_text(fake_server: Start) -> None:
    events = stream(fake_server({"cumulative_text": True, "answer_tokens": 3}))
    texts = [text_of([event]) for event in events if text_of([event])]
    assert texts[1].startswith(texts[0])
    assert texts[2].startswith(texts[1])


def test_garbage_only_with_a_variable_and_faster(fake_server: Start) -> None:
    behaviour = {"garbage_env": "NCCL_PROTO=LL128", "step_ms": 0}
    honest = text_of(stream(fake_server(behaviour)))
    same = text_of(stream(fake_server(behaviour, env={"NCCL_PROTO": "LL"})))
    wrong = text_of(stream(fake_server(behaviour, env={"NCCL_PROTO": "LL128"})))
    assert honest == same != wrong


def test_slow_first_requests_and_a_fall_for_good(fake_server: Start) -> None:
    server = fake_server({"slow_first": 2, "slow_first_factor": 20, "ttft_ms": 10, "step_ms": 0})
    stream(server)
    stream(server)
    first, later = (t["first_s"] - t["arrived_s"] for t in truths(server)[1:3])
    assert first >= 0.2
    assert later < first
    server = fake_server({"collapse_at_concurrency": 3, "collapse_factor": 10, "ttft_ms": 50})
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda i: stream(server, f"p{i}", max_tokens=2), range(3)))
    stream(server, "alone", max_tokens=2)
    last = truths(server)[-1]
    assert last["running"] == 1
    assert last["first_s"] - last["arrived_s"] >= 0.5


def test_throughput_falls_after_a_while(fake_server: Start) -> None:
    server = fake_server({"slow_after_s": 0.0, "slow_after_factor": 2.0, "ttft_ms": 50})
    stream(server, max_tokens=2)
    last = truths(server)[-1]
    assert last["first_s"] - last["arrived_s"] >= 0.1


def test_acceptance_falls_with_every_request(fake_server: Start) -> None:
    behaviour = {"acceptance": [1.0], "acceptance_loss_per_request": 0.25, "step_ms": 0}
    server = fake_server(behaviour, {"spec-steps": 1})
    shares = []
    for i in range(5):
        stream(server, f"prompt {i}")
        last = truths(server)[-1]
        shares.append(last["accepted"] / last["drafted"])
    assert shares[0] > shares[-1] == 0.0


def test_information_pages(fake_server: Start) -> None:
    server = fake_server({"info": {"max-running-requests": 48}}, {"spec-steps": 2, "model": "m"})
    assert get(server, "/v1/models").json()["data"][0]["id"] == "m"
    info = get(server, "/server_info").json()
    assert info == get(server, "/props").json()
    assert info["spec-steps"] == 2
    assert info["max-running-requests"] == 48
    assert info["is_synthetic"] is True
    assert get(server, "/nowhere").status_code == 404
    assert get(server, "/nowhere").json() == {"detail": "Not Found"}


def test_metrics_that_are_off_or_broken(fake_server: Start) -> None:
    assert get(fake_server({"metrics_status": 501}), "/metrics").status_code == 501
    assert "oops" in get(fake_server({"metrics_broken": True}), "/metrics").text


def test_the_native_route_streams_its_own_shape(fake_server: Start) -> None:
    server = fake_server({"answer_tokens": 4}, {"spec-steps": 1})
    body = {"text": "hi", "sampling_params": {"max_new_tokens": 9}, "stream": True}
    answer = request("POST", server, "/generate", body)
    events = [json.loads(x[6:]) for x in answer.text.splitlines() if x.startswith("data: {")]
    assert "".join(event["text"] for event in events).count(" ") == 4
    meta = events[-1]["meta_info"]
    assert meta["completion_tokens"] == 4
    assert meta["spec_verify_ct"] + meta["spec_accept_token_num"] == 4


def test_it_streams_fast(fake_server: Start) -> None:
    """Fast enough that a client, not the server, is what a test of a client measures."""
    server = fake_server({"step_ms": 0, "ttft_ms": 0})
    stream(server, max_tokens=20_000, ignore_eos=True)
    last = truths(server)[-1]
    assert last["output_tokens"] == 20_000
    assert 20_000 / (last["last_s"] - last["first_s"]) > 10_000


@pytest.mark.parametrize("timer", ["1", "0", None])
def test_the_device_timer_counts_the_parts_of_a_step(
    fake_server: Start, timer: str | None
) -> None:
    behaviour = {"answer_tokens": 12, "metrics_prefix": "sglang:", "step_ms": 4}
    env = {"SGLANG_ENABLE_METRICS_DEVICE_TIMER": timer}
    server = fake_server(behaviour, {"spec-steps": 2}, env=env)
    ask(server)
    page = parse_metrics(get(server, "/metrics").text)
    calls = page.total("sglang:spec_verify_calls_total")
    spent = page.by_label("category", "sglang:forward_execution_seconds_total")
    if timer != "1":
        assert (calls, spent) == (None, {})
        return
    assert calls
    assert spent["eagle_draft"] == pytest.approx(calls * 0.004 * 0.08 * 2)
    assert spent["target_verify"] > spent["eagle_draft"] > 0


def test_an_nccl_log_is_written_where_debugging_asks_for_it(
    fake_server: Start, tmp_path: Path
) -> None:
    behaviour = {"nccl_log": "NCCL version 2.27.3"}
    asked = {"NCCL_PROTO": "LL", "NCCL_DEBUG_FILE": str(tmp_path / "nccl.%h.%p.log")}
    fake_server(behaviour, env={**asked, "NCCL_DEBUG": "WARN"})
    assert not list(tmp_path.glob("nccl.*"))
    server = fake_server(behaviour, env={**asked, "NCCL_DEBUG": "INFO"})
    log = tmp_path / f"nccl.fake.{server.pid}.log"
    assert log.read_text().splitlines() == [
        "fake:1:1 [0] NCCL INFO NCCL_PROTO set by environment to LL",
        "fake:1:1 [0] NCCL INFO NCCL version 2.27.3",
    ]
