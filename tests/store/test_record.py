"""Stored documents: strict JSON out, the same document in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.store.record import (
    ConfirmationLaunch,
    LoadPointRecord,
    RecommendationRecord,
    TrialRecord,
    record_text,
)

numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(numbers | st.just(math.nan) | st.just(-math.inf), max_size=6))
def test_series_keep_their_length_and_their_finite_numbers(values: list[float]) -> None:
    point = LoadPointRecord(load="c1", per_block={"ttft_ms": values})
    text = record_text(point)
    json.loads(text, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    back = LoadPointRecord.model_validate_json(text).per_block["ttft_ms"]
    assert len(back) == len(values)
    for old, new in zip(values, back, strict=True):
        assert new == old if math.isfinite(old) else math.isnan(new)


def test_a_record_comes_back_equal(make_record: Callable[..., TrialRecord]) -> None:
    record = make_record(7, reason="exit 1: \ud83d half a face", warnings=["a", "b"])
    back = TrialRecord.model_validate_json(record_text(record))
    assert back.reason == "exit 1: � half a face"
    assert back.model_copy(update={"reason": record.reason}) == record


def test_fields_of_a_newer_version_are_ignored(make_record: Callable[..., TrialRecord]) -> None:
    data = json.loads(record_text(make_record(1)))
    data["a_field_of_version_9"] = {"x": 1}
    assert TrialRecord.model_validate(data) == make_record(1)


@pytest.mark.parametrize("name", ["drift", "cycle", "is_draft_fault", "outputs_match"])
def test_a_trial_stored_before_a_field_existed_is_read(
    make_record: Callable[..., TrialRecord], name: str
) -> None:
    data = json.loads(record_text(make_record(1)))
    assert data.pop(name) == getattr(make_record(1), name)
    assert TrialRecord.model_validate(data) == make_record(1)


def test_verdicts_and_launches_stored_before_fields_existed_are_read() -> None:
    verdict = RecommendationRecord(verdict="use", trial=3, ratio=1.2, reasons=["why"])
    data = json.loads(record_text(verdict))
    assert data.pop("decided_by") == ""
    assert RecommendationRecord.model_validate(data) == verdict
    launch = ConfirmationLaunch(round=0, order=1, trial=3, digest="d", value=1.0, per_block=[1.0])
    data = json.loads(record_text(launch))
    assert (data.pop("block_counts"), data.pop("loads")) == ({}, [])
    assert ConfirmationLaunch.model_validate(data) == launch


def test_pydantic_itself_writes_no_nan_either(make_record: Callable[..., TrialRecord]) -> None:
    record = make_record(1, metrics={"ttft_ms": math.nan})
    assert json.loads(record.model_dump_json())["metrics"] == {"ttft_ms": None}
