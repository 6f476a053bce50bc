"""Acceptance and seconds per step, from streams and metric pages of real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.engines.sglang.acceptance import acceptance_of, cycle_of
from tuner.engines.sglang.chat import chat_wire, generation_check
from tuner.measure.records import Prompt, RequestRecord, Sampling, Snapshot

DATA = Path(__file__).parent / "data" / "sglang"
EMPTY = Snapshot(0.0)


def page(text: str) -> Snapshot:
    return Snapshot(1.0, {"/metrics": text})


def record(details: Any, category: str = "chat", key: str = "sglext") -> RequestRecord:
    extra = {"sglext": {"spec_tokens_details": details}} if key == "sglext" else {key: details}
    return RequestRecord("p", category, 0, 0, 1, 2, 2, (), 4, 8, 0, "stop", extra=extra)


def counts(verify: int, correct: int, proposed: int, histogram: list[int]) -> dict[str, Any]:
    return {
        "spec_verify_ct": verify,
        "spec_num_correct_drafts": correct,
        "spec_num_proposed_drafts": proposed,
        "spec_correct_drafts_histogram": histogram,
        "spec_accept_length": 99.0,
    }


def test_lengths_are_pooled_and_positions_come_from_the_histogram() -> None:
    records = [
        record(counts(4, 4, 8, [1, 2, 1]), "code"),
        record(counts(6, 2, 12, [4, 2]), "chat"),
    ]
    found = acceptance_of(EMPTY, EMPTY, records, is_synthetic=False)
    assert found is not None
    assert found.length == pytest.approx(1.6)
    assert found.rate == pytest.approx(0.3)
    assert found.per_position == (0.5, 0.1)
    assert (found.steps, found.drafted, found.accepted) == (10, 20, 6)
    assert found.by_category == {"code": 2.0, "chat": pytest.approx(4 / 3)}


def test_never_accepted_is_a_length_of_one_with_steps() -> None:
    found = acceptance_of(EMPTY, EMPTY, [record(counts(5, 0, 10, [5]))], is_synthetic=False)
    assert found is not None
    assert (found.length, found.steps, found.accepted, found.drafted) == (1.0, 5, 0, 10)
    assert found.per_position == (0.0,)
    assert found.rate == 0.0


def test_never_drafted_is_no_steps_and_not_reported_is_none() -> None:
    busy = page((DATA / "metrics_off.txt").read_text())
    never = acceptance_of(page(""), busy, [], is_synthetic=False)
    assert never is not None
    assert (never.steps, never.length) == (0, 1.0)
    assert acceptance_of(EMPTY, EMPTY, [record(None)], is_synthetic=False) is None
    old = page('sglang:generation_tokens_total{a="b"} 12.0\nsglang:spec_accept_length 2.5\n')
    assert acceptance_of(page(""), old, [], is_synthetic=False) is None
    assert acceptance_of(busy, busy, [], is_synthetic=False) is None


def test_without_counts_in_the_answers_the_counters_tell_the_length() -> None:
    after = page((DATA / "metrics_eagle3.txt").read_text())
    found = acceptance_of(page(""), after, [], is_synthetic=True)
    assert found is not None
    assert (found.steps, found.accepted, found.length) == (10, 0, 1.0)
    assert (found.basis, found.is_synthetic) == ("/metrics", True)
    late = page(
        "sglang:generation_tokens_total 140.0\nsglang:spec_verify_calls_total 60.0\n"
        "sglang:num_requests_total 4.0\n"
    )
    found = acceptance_of(
        page("sglang:spec_verify_calls_total 10\nsglang:generation_tokens_total 20\n"
             "sglang:num_requests_total 2\n"),
        late, [], is_synthetic=False,
    )  # fmt: skip
    assert found is not None
    assert (found.steps, found.accepted) == (50, 68)


def test_counts_that_the_counters_contradict_are_said_so() -> None:
    records = [record(counts(10, 5, 20, [5, 5]))]
    agreed = page("sglang:spec_verify_calls_total 10.0\n")
    doubled = page("sglang:spec_verify_calls_total 25.0\n")
    one = acceptance_of(page(""), agreed, records, is_synthetic=False)
    other = acceptance_of(page(""), doubled, records, is_synthetic=False)
    assert one is not None
    assert one.basis == "verify counts of the answers"
    assert other is not None
    assert "/metrics counted 25" in other.basis


def test_names_of_older_versions_and_the_native_route_are_read() -> None:
    old = {"spec_verify_ct": 4, "spec_accept_token_num": 6, "spec_draft_token_num": 12}
    found = acceptance_of(EMPTY, EMPTY, [record(old, key="meta_info")], is_synthetic=False)
    assert found is not None
    assert (found.length, found.drafted, found.per_position) == (2.5, 12, ())
    only_histogram = {"spec_verify_ct": 4, "spec_accept_histogram": [1, 1, 2]}
    found = acceptance_of(EMPTY, EMPTY, [record(only_histogram, key="meta_info")], False)
    assert found is not None
    assert (found.length, found.accepted) == (2.25, 5)


@pytest.mark.parametrize(
    "details",
    [[], "x", 3, {"spec_verify_ct": "4"}, {"spec_verify_ct": True}, {"spec_verify_ct": -1},
     {"spec_verify_ct": float("nan")}, {"spec_verify_ct": float("inf")}, [None]],
)  # fmt: skip
def test_unreadable_counts_are_not_reported(details: Any) -> None:
    assert acceptance_of(EMPTY, EMPTY, [record(details)], is_synthetic=False) is None


def test_the_cycle_is_seconds_per_verification_by_part() -> None:
    name = "sglang:forward_execution_seconds_total"
    before = page(f'{name}{{category="target_verify"}} 1.0\nsglang:spec_verify_calls_total 0\n')
    after = page(
        f'{name}{{category="target_verify"}} 3.0\n{name}{{category="eagle_draft"}} 1.0\n'
        f'{name}{{category="eagle_draft_extend"}} 0.5\n{name}{{category="extend"}} 9.0\n'
        f'{name}{{category="decode"}} 0.25\nsglang:spec_verify_calls_total 100\n'
    )
    assert cycle_of(before, after) == {
        "verify": 0.02, "draft": 0.01, "draft_extend": 0.005, "other": 0.0025,
    }  # fmt: skip
    assert cycle_of(before, before) == {}
    assert cycle_of(EMPTY, page(f'{name}{{category="decode"}} 1.0\n')) == {}


def test_the_streamed_chat_route_ends_with_counts_and_cached_tokens() -> None:
    wire = chat_wire("tiny", is_speculative=True)
    events = (DATA / "stream_eagle3.jsonl").read_text().splitlines()
    deltas = [wire.parse(json.loads(line)) for line in events]
    assert "".join(delta.text for delta in deltas) == "rc"
    assert [d.finish_reason for d in deltas if d.finish_reason] == ["length"]
    assert [d.cached_tokens for d in deltas if d.cached_tokens is not None] == [4]
    assert [d.output_tokens for d in deltas if d.output_tokens is not None] == [8]
    extra = {k: v for d in deltas for k, v in d.extra.items()}
    answer = RequestRecord("p", "c", 0, 0, 1, 2, 2, (), 6, 8, 4, "length", extra=extra)
    found = acceptance_of(EMPTY, EMPTY, [answer], is_synthetic=True)
    assert found is not None
    assert (found.length, found.per_position, found.rate) == (2.0, (1.0,), 0.5)


def test_only_a_speculative_server_is_asked_for_its_counts() -> None:
    prompt = Prompt("1", ({"role": "user", "content": "hi"},))
    body = chat_wire("m", is_speculative=True).body(prompt, Sampling(8, exact_tokens=True))
    assert body["return_spec_tokens_details"] is True
    assert body["ignore_eos"] is True
    assert body["stream_options"] == {"include_usage": True}
    plain = chat_wire("m", is_speculative=False).body(prompt, Sampling(8))
    assert "return_spec_tokens_details" not in plain


def test_a_generation_counts_tokens_not_letters() -> None:
    check = generation_check("m")
    assert check.has_text({"choices": [{}], "usage": {"completion_tokens": 4}})
    assert not check.has_text({"choices": [{}], "usage": {"completion_tokens": 0}})
    assert not check.has_text({"choices": [], "usage": {"completion_tokens": 4}})
    assert not check.has_text({"detail": "Not Found"})
    assert not check.has_text([])
