"""Blocks survive their stored form."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.records import Block, LoadPoint, RequestRecord
from tuner.store.blocks import (
    block_from_json,
    block_to_json,
    blocks_from_lines,
    blocks_to_lines,
)
from tuner.store.files import read_gzip, write_gzip

seconds = st.floats(min_value=0, max_value=1e6)
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
counts = st.none() | st.integers(0, 10**6)

requests = st.builds(
    RequestRecord,
    prompt_id=texts,
    category=texts,
    scheduled_s=seconds,
    sent_s=seconds,
    first_s=st.none() | seconds,
    last_s=st.none() | seconds,
    end_s=seconds,
    chunk_s=st.lists(seconds, max_size=5).map(tuple),
    prompt_tokens=counts,
    output_tokens=counts,
    cached_tokens=counts,
    finish_reason=st.none() | texts,
    error=texts,
    text=texts,
    extra=st.dictionaries(texts, st.integers() | texts, max_size=2),
)
loads = st.builds(LoadPoint, concurrency=st.integers(1, 64)) | st.builds(
    LoadPoint, rate=st.floats(0.1, 50), arrivals=st.sampled_from(["poisson", "constant"])
)
blocks = st.builds(
    Block,
    index=st.integers(0, 9),
    load=loads,
    start_s=seconds,
    end_s=seconds,
    records=st.lists(requests, max_size=3).map(tuple),
    client_cpu_s=seconds,
    notes=st.lists(texts, max_size=2).map(tuple),
    client_lag_s=seconds,
    peak_in_flight=st.integers(0, 256),
    is_client_bound=st.booleans(),
    gpus=st.lists(
        st.fixed_dictionaries(
            {"index": st.integers(0, 7), "throttled": st.just({"power cap": 0.5})}
        ),
        max_size=2,
    ).map(tuple),
)


@given(st.lists(blocks, max_size=3))
def test_blocks_come_back_equal(several: list[Block]) -> None:
    assert blocks_from_lines(blocks_to_lines(several)) == several


def test_line_separators_in_a_text_do_not_split_a_line(make_block: Callable[..., Block]) -> None:
    block = make_block(text="one\u2028two\x0bthree\x85four\r\n")
    assert blocks_from_lines(blocks_to_lines([block, block])) == [block, block]


@pytest.mark.parametrize(
    ("name", "assumed"),
    [("client_lag_s", 0.0), ("peak_in_flight", 0), ("is_client_bound", False), ("gpus", ())],
)
def test_a_block_stored_before_a_field_existed_is_read(
    make_block: Callable[..., Block], name: str, assumed: object
) -> None:
    stored = block_to_json(make_block())
    del stored[name]
    assert getattr(block_from_json(stored), name) == assumed


def test_a_number_that_is_not_finite_is_read_as_absent(make_block: Callable[..., Block]) -> None:
    block = make_block()
    strange = Block(0, block.load, 0.0, math.inf, ())
    assert "Infinity" not in blocks_to_lines([strange])


def test_gzip_is_reproducible(tmp_path: Path) -> None:
    write_gzip(tmp_path / "a.gz", "text")
    write_gzip(tmp_path / "b.gz", "text")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert read_gzip(tmp_path / "a.gz") == "text"
