"""Owns vLLM's per-batch-size table `num_speculative_tokens_per_batch_size`, as pure functions.

An entry is `[first, last, tokens]`: for batches of `first` to `last` running requests, draft
`tokens` (0: do not draft). Gaps and everything after the last entry keep the entry before them;
tokens are capped at `num_speculative_tokens` (vllm/v1/spec_decode/dynamic/utils.py, 0.32).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeAlias

from tuner.engines.depths import halfway

SCHEDULE = "num_speculative_tokens_per_batch_size"
Speculation: TypeAlias = dict[str, Any]
Entry: TypeAlias = list[int]


def read_schedule(value: Any) -> Any:
    """A table as lists, from lists, JSON text or `1-4:5,5-64:2`; anything else comes back as it
    is, for `schedule_problem` to name."""
    if isinstance(value, str):
        value = _from_text(value)
    if isinstance(value, list | tuple) and all(isinstance(e, list | tuple) for e in value):
        return [list(entry) for entry in value]
    return value


def schedule_problem(value: Any) -> str:
    """What vLLM would refuse about a table; "" when it is well formed."""
    if not isinstance(value, list) or not value:
        return f"must be a non-empty list of [first, last, tokens], got {value!r}"
    for entry in value:
        problem = _entry_problem(entry)
        if problem:
            return problem
    rows = sorted(value)
    if rows[0][0] != 1:
        return f"the first batch-size range must start at 1, got {rows[0][0]}"
    for before, after in pairwise(rows):
        if after[0] <= before[1]:
            return f"batch-size ranges must not overlap, got {before} and {after}"
    return ""


def normalize_schedule(value: Any, limit: int | None) -> Any:
    """The shortest table of the same meaning: sorted, gaps closed, equal neighbours merged.

    A table that is not well formed comes back as it is. `limit` is `num_speculative_tokens`.
    """
    if schedule_problem(value):
        return value
    merged: list[Entry] = []
    for first, last, tokens in sorted(value):
        capped = tokens if limit is None else min(tokens, limit)
        if merged:
            merged[-1][1] = first - 1
        if merged and merged[-1][2] == capped:
            merged[-1][1] = last
        else:
            merged.append([first, last, capped])
    return merged


def with_schedule(spec: Mapping[str, Any], best: Mapping[int, int], max_batch: int) -> Speculation:
    """A speculative configuration that drafts the depth found best at each concurrency.

    Args:
        spec: the configuration of any of the measured servers; everything but depth is kept.
        best: best depth by concurrency, 0 where speculation does not pay.
        max_batch: the most requests the server runs at once (`max-num-seqs`).

    Raises:
        ValueError: no depth above 0 was found, or as `build_schedule`.
    """
    table = build_schedule(best, max_batch)
    deepest = max(best.values())
    if deepest < 1:
        raise ValueError("schedule: some depth must be at least 1, got 0 at every concurrency")
    fixed = {key: value for key, value in spec.items() if key != SCHEDULE}
    return {**fixed, "num_speculative_tokens": deepest, SCHEDULE: table}


def tokens_for(schedule: list[Entry], batch_size: int) -> int:
    """Draft tokens that a well-formed table asks for at `batch_size` running requests."""
    return [tokens for first, _, tokens in sorted(schedule) if first <= batch_size][-1]


def build_schedule(best: Mapping[int, int], max_batch: int) -> list[Entry]:
    """A table from the best depth measured at each concurrency, up to `max_batch`.

    A depth holds from its own batch size up to halfway (geometrically) to the next measured one;
    ties between measured neighbours need no entry. Depths need not fall with the batch size.

    Raises:
        ValueError: nothing was measured, or a batch size or depth is out of range.
    """
    if not best or min(best) < 1 or min(best.values()) < 0 or max_batch < max(best):
        raise ValueError(
            "schedule: batch sizes must be 1 to max_batch and depths at least 0, "
            f"got {dict(best)} with max_batch {max_batch}"
        )
    sizes = sorted(best)
    firsts = [1, *(halfway(a, b) + 1 for a, b in pairwise(sizes))]
    lasts = [*(first - 1 for first in firsts[1:]), max_batch]
    rows = [[f, t, best[s]] for f, t, s in zip(firsts, lasts, sizes, strict=True)]
    return [list(row) for row in normalize_schedule(rows, None)]


def _entry_problem(entry: Any) -> str:
    is_triple = isinstance(entry, list) and len(entry) == 3
    if not is_triple or not all(type(number) is int for number in entry):
        return f"each entry must be three integers [first, last, tokens], got {entry!r}"
    first, last, tokens = entry
    if first < 1 or last < first:
        return f"a range must satisfy 1 <= first <= last, got {entry}"
    return f"tokens must be at least 0, got {entry}" if tokens < 0 else ""


def _from_text(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    rows = []
    for part in text.split(","):
        sizes, _, tokens = part.partition(":")
        first, _, last = sizes.partition("-")
        numbers = (first, last or first, tokens)
        if not all(number.strip().isdecimal() for number in numbers):
            return text
        rows.append([int(number) for number in numbers])
    return rows
