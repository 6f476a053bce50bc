"""Owns whether a measurement may be believed: failures it refuses, oddities it warns about."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tuner.errors import FailureKind, TrialFailure
from tuner.measure.exchange import NO_USAGE
from tuner.measure.records import LoadSummary, Measurement, RequestRecord

MOST_ERRORS = 0.01
_MOST_TOKENS_PER_S = 1e7
_FEWEST_CHARACTERS_PER_TOKEN = 0.5
_MOST_CHARACTERS_PER_TOKEN = 16.0
_USAGE_BEYOND_TEXT = 0.05
_USAGE_HINT = (
    "Use a server that honours stream_options.include_usage, or a model folder with "
    "tokenizer.json and the tokenizers package installed, so that tokens can be counted here."
)


def check_measurement(
    measurement: Measurement, baseline: Measurement | None = None
) -> tuple[str, ...]:
    """Warnings about a measurement, those of its summary included.

    Raises TrialFailure(REQUEST_ERRORS) when more than 1 % of the requests failed, or the usage
    is missing; TrialFailure(IMPLAUSIBLE) when nothing was measured, figures are not finite and
    positive, or the client was the bottleneck of every block.
    """
    warnings = list(measurement.warnings)
    if not measurement.summaries:
        raise TrialFailure(FailureKind.IMPLAUSIBLE, "no block was measured")
    for summary in measurement.summaries:
        records = _records(measurement, summary)
        _refuse_errors(summary, records)
        _refuse_client_bound(measurement, summary)
        _refuse_implausible(summary, records)
        warnings += [f"{summary.load.label}: {text}" for text in _oddities(summary, records)]
        warnings += _load_reached(measurement, summary)
        if baseline is not None:
            warnings += _cache_against(measurement, baseline, summary)
    return tuple(dict.fromkeys(warnings))


def cached_share(records: Sequence[RequestRecord]) -> float | None:
    """Share of prompt tokens that came from the prompt cache; None when not reported."""
    known = [r for r in records if r.cached_tokens is not None and r.prompt_tokens]
    prompt = sum(record.prompt_tokens or 0 for record in known)
    return sum(record.cached_tokens or 0 for record in known) / prompt if prompt else None


def _records(measurement: Measurement, summary: LoadSummary) -> list[RequestRecord]:
    return [r for b in measurement.blocks if b.load == summary.load for r in b.records]


def _refuse_errors(summary: LoadSummary, records: Sequence[RequestRecord]) -> None:
    errors = Counter(record.error or "no finish reason" for record in records if not record.ok)
    failed = sum(errors.values())
    if not failed or failed <= MOST_ERRORS * len(records):
        return
    text, times = errors.most_common(1)[0]
    reason = f"{failed} of {len(records)} requests failed at {summary.load.label}: {text}"
    if len(errors) > 1:
        reason += f" ({times} times, and {len(errors) - 1} other errors)"
    hint = _USAGE_HINT if text == NO_USAGE else ""
    raise TrialFailure(FailureKind.REQUEST_ERRORS, reason, hint=hint)


def _refuse_client_bound(measurement: Measurement, summary: LoadSummary) -> None:
    blocks = [block for block in measurement.blocks if block.load == summary.load]
    if all(block.is_client_bound for block in blocks):
        raise TrialFailure(
            FailureKind.IMPLAUSIBLE,
            f"the client, not the server, was the bottleneck of every block at "
            f"{summary.load.label}: {blocks[-1].notes[-1]}",
            hint="Measure on an idle machine, or lower the load.",
        )


def _refuse_implausible(summary: LoadSummary, records: Sequence[RequestRecord]) -> None:
    speed = summary.metrics.get("output_tokens_per_s", math.nan)
    if not 0 < speed < _MOST_TOKENS_PER_S:
        raise TrialFailure(
            FailureKind.IMPLAUSIBLE,
            f"output_tokens_per_s must be positive and finite, got {speed:g} at "
            f"{summary.load.label}",
        )
    wrong = [r for r in records if r.ok and r.end_s <= r.sent_s]
    if wrong:
        raise TrialFailure(
            FailureKind.IMPLAUSIBLE, f"{len(wrong)} requests took no time at {summary.load.label}"
        )


def _oddities(summary: LoadSummary, records: Sequence[RequestRecord]) -> list[str]:
    done = [record for record in records if record.ok]
    warnings = []
    if summary.errors:
        warnings.append(f"{summary.errors} of {summary.requests} requests failed")
    empty = sum(not record.output_tokens or not record.text for record in done)
    if empty:
        warnings.append(f"{empty} of {len(done)} answers were empty")
    counted = sum("tokens_counted_locally" in record.extra for record in done)
    if counted:
        warnings.append(
            f"{counted} of {len(done)} answers had no usage: their tokens were counted with the "
            "model's tokenizer"
        )
    odd = _usage_against_text(done)
    return [*warnings, odd] if odd else warnings


def _usage_against_text(done: Sequence[RequestRecord]) -> str:
    """Usage that cannot be right for the text: more chunks than tokens, or absurd lengths.

    A stream may deliver several tokens per chunk but never several chunks per token, beyond the
    few that split a character.
    """
    tokens = sum(record.output_tokens or 0 for record in done)
    characters = sum(len(record.text) for record in done)
    chunks = sum(len(record.chunk_s) for record in done)
    if not tokens or not characters:
        return ""
    if chunks > tokens * (1 + _USAGE_BEYOND_TEXT):
        return f"usage counts {tokens} tokens, but {chunks} chunks with text arrived"
    per_token = characters / tokens
    if not _FEWEST_CHARACTERS_PER_TOKEN <= per_token <= _MOST_CHARACTERS_PER_TOKEN:
        return f"usage counts {tokens} tokens for {characters} characters of text"
    return ""


def _load_reached(measurement: Measurement, summary: LoadSummary) -> list[str]:
    wanted = summary.load.concurrency or 1
    blocks = [block for block in measurement.blocks if block.load == summary.load]
    reached = max(block.peak_in_flight for block in blocks)
    if 0 < reached < wanted:
        return [f"{summary.load.label}: only {reached} requests were in flight at once"]
    return []


def _cache_against(
    measurement: Measurement, baseline: Measurement, summary: LoadSummary
) -> list[str]:
    """A trial that was served more of its prompts from the cache is not comparable."""
    try:
        other = _records(baseline, baseline.at(summary.load))
    except KeyError:
        return []
    ours, theirs = cached_share(_records(measurement, summary)), cached_share(other)
    if ours is None or theirs is None or ours <= theirs + 0.05:
        return []
    return [
        f"{summary.load.label}: {ours:.0%} of the prompt tokens came from the cache, the "
        f"baseline's {theirs:.0%}: time to first token is not comparable"
    ]
