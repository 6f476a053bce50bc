"""What is refused and what is warned about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tuner.errors import FailureKind, TrialFailure
from tuner.measure.checks import cached_share, check_measurement
from tuner.measure.metrics import summarize
from tuner.measure.records import Block, LoadPoint, Measurement, RequestRecord

C1, C4 = LoadPoint(concurrency=1), LoadPoint(concurrency=4)


def request(place: int = 0, **changes: Any) -> RequestRecord:
    start = float(place)
    record = RequestRecord(
        prompt_id=f"p{place}",
        category="qa",
        scheduled_s=start,
        sent_s=start,
        first_s=start + 0.1,
        last_s=start + 0.9,
        end_s=start + 0.9,
        chunk_s=(start + 0.1, start + 0.5, start + 0.9),
        prompt_tokens=20,
        output_tokens=10,
        cached_tokens=0,
        finish_reason="stop",
        text="ten tokens are about forty characters",
    )
    return replace(record, **changes)


def measure(records: list[RequestRecord], load: LoadPoint = C1, **changes: Any) -> Measurement:
    values: dict[str, Any] = {"peak_in_flight": load.concurrency, **changes}
    end = max((record.end_s for record in records), default=1.0)
    return summarize([Block(0, load, 0.0, end, tuple(records), **values)])


def failure(measurement: Measurement) -> TrialFailure:
    with pytest.raises(TrialFailure) as caught:
        check_measurement(measurement)
    return caught.value


def test_a_sound_measurement_has_no_warnings() -> None:
    assert check_measurement(measure([request(n) for n in range(8)])) == ()


def test_half_of_the_requests_failing_fast() -> None:
    bad = {"error": "HTTP 503: busy", "finish_reason": None, "output_tokens": None}
    found = failure(measure([request(n, **(bad if n % 2 else {})) for n in range(8)]))
    assert found.kind is FailureKind.REQUEST_ERRORS
    assert found.reason == "4 of 8 requests failed at c1: HTTP 503: busy"


def test_different_errors_are_counted() -> None:
    bad = [
        request(n, error=text, finish_reason=None)
        for n, text in enumerate(["reset", "HTTP 500", "reset"])
    ]
    found = failure(measure([*bad, *(request(n) for n in range(3, 9))]))
    assert found.reason == "3 of 9 requests failed at c1: reset (2 times, and 1 other errors)"


def test_a_single_failure_in_many_is_a_warning() -> None:
    records = [request(n) for n in range(150)]
    records[7] = request(7, error="reset", finish_reason=None)
    assert check_measurement(measure(records)) == ("c1: 1 of 150 requests failed",)


def test_tokens_counted_here_are_named() -> None:
    local = {"tokens_counted_locally": True}
    records = [request(n, extra=local if n < 3 else {}) for n in range(8)]
    assert check_measurement(measure(records)) == (
        "c1: 3 of 8 answers had no usage: their tokens were counted with the model's tokenizer",
    )


def test_missing_usage_has_a_hint() -> None:
    found = failure(measure([request(0, error="the server reported no usage")]))
    assert found.kind is FailureKind.REQUEST_ERRORS
    assert "stream_options.include_usage" in found.hint


def test_nothing_measured() -> None:
    found = failure(Measurement((), ()))
    assert (found.kind, found.reason) == (FailureKind.IMPLAUSIBLE, "no block was measured")


def test_no_tokens_are_implausible() -> None:
    found = failure(measure([request(0, output_tokens=0, text="")]))
    assert found.kind is FailureKind.IMPLAUSIBLE
    assert "output_tokens_per_s must be positive and finite, got 0 at c1" in found.reason


def test_no_time_is_implausible() -> None:
    records = [request(0), request(1, end_s=1.0)]
    assert failure(measure(records)).reason == "1 requests took no time at c1"


def test_client_bound_everywhere() -> None:
    bound = measure([request(0)], is_client_bound=True, notes=("client bound: busy",))
    found = failure(bound)
    assert found.kind is FailureKind.IMPLAUSIBLE
    assert not found.kind.is_config_fault
    assert found.reason.endswith("bottleneck of every block at c1: client bound: busy")


def test_empty_answers_are_told() -> None:
    records = [request(0), request(1, text=""), request(2, output_tokens=0)]
    assert check_measurement(measure(records)) == ("c1: 2 of 3 answers were empty",)


def test_more_chunks_than_tokens() -> None:
    records = [request(n, output_tokens=2) for n in range(4)]
    assert check_measurement(measure(records)) == (
        "c1: usage counts 8 tokens, but 12 chunks with text arrived",
    )


def test_small_differences_of_usage_are_tolerated() -> None:
    """The tail of an accepted block may be counted and not delivered."""
    assert check_measurement(measure([request(n, output_tokens=13) for n in range(4)])) == ()


@pytest.mark.parametrize("tokens", [3, 900])
def test_usage_that_cannot_be_right_for_the_text(tokens: int) -> None:
    records = [request(n, output_tokens=tokens, text="word " * 30) for n in range(4)]
    (warning,) = check_measurement(measure(records))
    assert warning == f"c1: usage counts {4 * tokens} tokens for 600 characters of text"


def test_load_that_was_not_reached() -> None:
    low = measure([request(n) for n in range(4)], C4, peak_in_flight=2)
    assert check_measurement(low) == ("c4: only 2 requests were in flight at once",)


def test_more_cached_tokens_than_the_baseline() -> None:
    baseline = measure([request(n) for n in range(4)])
    cached = measure([request(n, cached_tokens=15) for n in range(4)])
    (warning,) = check_measurement(cached, baseline)
    assert warning.startswith(
        "c1: 75% of the prompt tokens came from the cache, the baseline's 0%"
    )
    assert check_measurement(baseline, cached) == ()
    assert check_measurement(cached, cached) == ()
    assert check_measurement(cached, measure([request(0)], C4)) == ()


def test_cached_share() -> None:
    assert cached_share([request(0, cached_tokens=5), request(1, cached_tokens=None)]) == 0.25
    assert cached_share([request(0, cached_tokens=None)]) is None
    assert cached_share([]) is None
