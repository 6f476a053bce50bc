"""Acceptance from `/metrics`: a real page, several engines, old names, broken pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tuner.engines.vllm.counters import read_acceptance
from tuner.measure.records import Acceptance, RequestRecord, Snapshot

STEM = "vllm:spec_decode_num_"


def page(
    drafts: float, drafted: float, accepted: float, steps: float | None, *, total: str = "_total"
) -> str:
    lines = [
        f'{STEM}drafts{total}{{engine="0"}} {drafts}',
        f'{STEM}draft_tokens{total}{{engine="0"}} {drafted}',
        f'{STEM}accepted_tokens{total}{{engine="0"}} {accepted}',
        f'{STEM}drafts_created{{engine="0"}} 1.79e+09',
    ]
    if steps is not None:
        lines.append(f'vllm:inter_token_latency_seconds_count{{engine="0"}} {steps}')
    return "\n".join(lines)


def read(before: str, after: str, *records: RequestRecord) -> Acceptance | None:
    shots = [Snapshot(0.0, {"/metrics": text}) for text in (before, after)]
    return read_acceptance(shots[0], shots[1], records, is_synthetic=False)


def record(category: str, output: int, extra: Mapping[str, Any]) -> RequestRecord:
    return RequestRecord(
        "p", category, 0, 0, 1, 2, 3, (1.0,), 9, output, None, "stop", extra=extra
    )


def test_a_real_page(log: Callable[[str], str]) -> None:
    found = read("", log("ngram.prom"))
    assert found is not None
    # 40 tokens: the first, then 12 decode steps that accepted 27; 8 of the 12 drafted.
    assert found.length == pytest.approx(1 + 27 / 12)
    assert (found.steps, found.drafted, found.accepted) == (12, 32, 27)
    assert found.rate == pytest.approx(27 / 32)
    assert found.per_position == pytest.approx((8 / 12, 7 / 12, 6 / 12, 6 / 12))
    assert sum(found.per_position) == pytest.approx(found.length - 1)
    assert found.basis == "/metrics, all 12 decode steps (67% drafted), 4.38 while drafting"


def test_the_published_ngram_run_is_both_of_its_figures() -> None:
    # 4.59 while drafting and 2.96 over all tokens need 54.6 % of the steps to draft.
    found = read("", page(546, 2730, 1960, 1000))
    assert found is not None
    assert found.length == pytest.approx(2.96)
    assert found.basis.endswith("4.59 while drafting")


def test_only_the_window_counts() -> None:
    found = read(page(100, 300, 150, 110), page(200, 600, 300, 220))
    assert found is not None
    assert (found.steps, found.drafted, found.accepted) == (110, 300, 150)


@pytest.mark.parametrize("total", ["", "_total"])
def test_without_step_counts_drafts_are_the_steps(total: str) -> None:
    found = read("", page(100, 300, 150, None, total=total))
    assert found is not None
    assert found.length == pytest.approx(2.5)
    assert found.basis == "/metrics, the 100 steps that drafted, 2.50 while drafting"


def test_all_engines_are_summed() -> None:
    two = page(100, 300, 150, 100) + "\n" + page(50, 150, 30, 50).replace('"0"', '"1"')
    found = read("", two)
    assert found is not None
    assert (found.steps, found.accepted) == (150, 180)


def test_an_ngram_that_never_matched() -> None:
    found = read("", page(0, 0, 0, 40))
    assert found is not None
    assert (found.length, found.rate, found.drafted) == (1.0, None, 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("", '{"detail":"Not Found"}'), (page(9, 9, 9, 9), page(1, 1, 1, 1)),
     ("", 'vllm:generation_tokens_total{engine="0"} 40'),
     (page(5, 5, 5, 5), page(5, 5, 5, 5))],
)  # fmt: skip
def test_nothing_is_reported(before: str, after: str) -> None:
    assert read(before, after) is None


def test_categories_come_from_per_request_metrics() -> None:
    def drafting(accepted: int) -> dict[str, Any]:
        return {"metrics": {"speculative_decoding": {"num_accepted_draft_tokens": accepted}}}

    found = read(
        "",
        page(20, 60, 30, 30),
        record("code", 41, drafting(20)),
        record("code", 21, drafting(10)),
        record("chat", 21, drafting(0)),
        record("chat", 21, {}),
    )
    assert found is not None
    assert found.by_category == {"chat": 1.0, "code": pytest.approx(2.0)}
