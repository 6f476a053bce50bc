"""Makers of records and blocks, and an open store in a temporary folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tuner.measure.records import Block, LoadPoint, RequestRecord
from tuner.store.database import Store, StudyMeta, open_store
from tuner.store.record import ArgsRecord, LoadPointRecord, Seconds, TrialRecord


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url, create=True) as opened:
        opened.save_study_meta(StudyMeta("demo", "demo", 1, "2026-12-01T00:00:00+00:00"))
        yield opened


@pytest.fixture
def make_record() -> Callable[..., TrialRecord]:
    def make(number: int = 0, **changes: Any) -> TrialRecord:
        fields: dict[str, Any] = {
            "number": number,
            "state": "complete",
            "params": {"steps": 3, "topk": 1},
            "requested_args": ArgsRecord(flags={"steps": 3}, env={"A": None}),
            "digest": f"digest-{number}",
            "value": 100.0 + number,
            "vs_baseline": 1.0 + number / 100,
            "load_points": [LoadPointRecord(load="c1", per_block={"tok": [1.0, 2.5]})],
            "seconds": Seconds(launch=2.0, measure=5.0, total=7.5),
        }
        return TrialRecord(**{**fields, **changes})

    return make


@pytest.fixture
def make_block() -> Callable[..., Block]:
    def make(index: int = 0, text: str = "an answer", requests: int = 2) -> Block:
        records = tuple(
            RequestRecord(
                prompt_id=f"p{i}",
                category="chat",
                scheduled_s=1.0,
                sent_s=1.0,
                first_s=1.25,
                last_s=2.0,
                end_s=2.5,
                chunk_s=(1.25, 2.0),
                prompt_tokens=7,
                output_tokens=5,
                cached_tokens=None,
                finish_reason="stop",
                text=text,
                extra={"timings": {"draft_n": 3}},
            )
            for i in range(requests)
        )
        return Block(index, LoadPoint(concurrency=1), 1.0, 2.5, records, 0.125, ("a note",))

    return make
