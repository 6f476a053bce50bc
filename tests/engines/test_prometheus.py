"""The tolerant reader of metric pages."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.engines.prometheus import delta, delta_by_label, parse_metrics

PAGE = """\
# HELP llamacpp:spec_decode_num_drafts_total Number of drafts.
# TYPE llamacpp:spec_decode_num_drafts_total counter
llamacpp:spec_decode_num_drafts_total 12
llamacpp:per_pos_total{position="0"} 9
llamacpp:per_pos_total{position="1"} 4

vllm:tokens_total{engine="0",model_name="a \\"b\\", {c}"} 3.0 1700000000000
vllm:tokens_total{engine="1",model_name="other",} 4e0
vllm:tokens_created{engine="0"} 1.7e9
up NaN
limit +Inf
"""


def test_values_labels_and_comments() -> None:
    metrics = parse_metrics(PAGE)
    assert metrics.bad_lines == 0
    assert metrics.total("llamacpp:spec_decode_num_drafts_total") == 12
    assert metrics.by_label("position", "llamacpp:per_pos_total") == {"0": 9, "1": 4}
    first = metrics.named("vllm:tokens_total")[0]
    assert first.labels == {"engine": "0", "model_name": 'a "b", {c}'}
    assert math.isnan(metrics.total("up") or 0)
    assert metrics.total("limit") == math.inf


def test_sums_over_label_sets_and_selects_by_label() -> None:
    metrics = parse_metrics(PAGE)
    assert metrics.total("vllm:tokens_total") == 7
    assert metrics.total("vllm:tokens_total", engine="1") == 4
    assert metrics.total("vllm:tokens_total", engine="9") is None


def test_created_timestamps_are_not_data() -> None:
    assert parse_metrics(PAGE).total("vllm:tokens_created") is None


def test_the_first_alias_present_wins() -> None:
    assert parse_metrics("old 1\nnew 2").total("new", "old") == 2
    assert parse_metrics("old 1").total("new", "old") == 1
    assert parse_metrics("").total("new", "old") is None


@pytest.mark.parametrize(
    "line",
    [
        "name",
        "name{label=1} 2",
        'name{label="open} 2',
        "name 0x10",
        "name 1_000",
        "1name 2",
        "<html>not here</html>",
        'name{a="b"} {c="d"} 1',
        "{} 1",
        "\x00\x01 5",
    ],
)
def test_a_bad_line_is_skipped_and_counted(line: str) -> None:
    metrics = parse_metrics(f"good 1\n{line}\nalso_good 2\n")
    assert metrics.bad_lines == 1
    assert [s.name for s in metrics.samples] == ["good", "also_good"]


def test_exemplars_are_ignored() -> None:
    assert parse_metrics('a_total 3 # {trace_id="x"} 0.5').total("a_total") == 3


def test_delta_of_a_counter() -> None:
    before, after = parse_metrics("n 5"), parse_metrics("n 8")
    assert delta(before, after, "n") == 3
    assert delta(parse_metrics(""), after, "n") == 8
    assert delta(before, parse_metrics(""), "n") is None
    assert delta(after, before, "n") is None
    assert delta(before, parse_metrics("n NaN"), "n") is None


def test_delta_by_label_starts_new_series_at_zero() -> None:
    before = parse_metrics('p{position="0"} 2')
    after = parse_metrics('p{position="0"} 5\np{position="1"} 1')
    assert delta_by_label(before, after, "position", "p") == {"0": 3, "1": 1}
    assert delta_by_label(after, before, "position", "p") is None
    assert delta_by_label(before, parse_metrics(""), "position", "p") == {}


@given(st.text())
def test_total_on_any_text(text: str) -> None:
    metrics = parse_metrics(text)
    assert metrics.bad_lines >= 0


@given(st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\n")), st.none()))
def test_label_values_round_trip(values: dict[str, None]) -> None:
    def quoted(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"')

    page = "\n".join(f'm{{l="{quoted(v)}"}} {i}' for i, v in enumerate(values))
    assert list(parse_metrics(page).by_label("l", "m")) == list(values)
