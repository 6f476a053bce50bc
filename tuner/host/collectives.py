"""Owns `tuner probe collectives`: all-reduce time per environment at the sizes of decode and
verify, so that hopeless environments are dropped before a model is ever loaded.

One worker group per environment is run by the engine's interpreter (it needs torch). Knows no
engine and starts no process itself: whoever calls hands in what runs a command.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from tuner.marked_lines import marked_json

WORKER = Path(__file__).with_name("collectives_worker.py")
MARKER = "TUNER-COLLECTIVES "

Environment: TypeAlias = Mapping[str, str | None]
Run: TypeAlias = Callable[[Sequence[str], Environment, str, float], str]
"""Runs argv with environment changes and standard input, for at most so many seconds, and returns
its standard output."""


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """What one probe runs: which interpreter, how many ranks, which messages.

    Args:
        python: interpreter that has torch.
        ranks: processes that reduce, one per GPU with NCCL.
        sizes: message sizes in bytes.
        backend: `nccl` on GPUs, `gloo` elsewhere.
        warm_up, repeats: all-reduces per size before the clock starts, and timed ones.
        timeout_s: patience per environment; a hang costs no more.
    """

    python: str
    ranks: int
    sizes: tuple[int, ...]
    backend: str = "nccl"
    warm_up: int = 10
    repeats: int = 50
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One environment at one message size; `error` says why there is no time.

    `ratio` is the time over that of the unchanged environment, below 1 is faster.
    """

    environment: Mapping[str, str | None]
    bytes: int
    median_us: float | None = None
    p95_us: float | None = None
    ratio: float | None = None
    error: str = ""


def message_sizes(
    model_config: Mapping[str, Any],
    *,
    batches: Sequence[int] = (1, 8),
    tokens: Sequence[int] = (1, 4, 8),
    bytes_per_value: int = 2,
) -> tuple[int, ...]:
    """Bytes of the all-reduces of decode (1 token per request) and verify (draft tokens).

    Args:
        model_config: the target's config.json.
        batches: requests that run at once.
        tokens: tokens per request and step: 1 for decode, the draft tokens for verify.
        bytes_per_value: of an activation; 2 for bfloat16.

    Raises:
        ValueError: the config names no hidden size.
    """
    nested = model_config.get("text_config")
    hidden = (nested if isinstance(nested, Mapping) else model_config).get("hidden_size")
    hidden = hidden or model_config.get("hidden_size")
    if not isinstance(hidden, int) or hidden < 1:
        raise ValueError(f"config.json: hidden_size must be a positive number, got {hidden}")
    found = {hidden * b * t * bytes_per_value for b, t in product(batches, tokens)}
    return tuple(sorted(found))


def environments(choices: Mapping[str, Sequence[str | None]]) -> list[dict[str, str | None]]:
    """Every combination of choices, the one that sets nothing first; None removes a variable."""
    names = list(choices)
    every = (dict(zip(names, values, strict=True)) for values in product(*choices.values()))
    unset: dict[str, str | None] = dict.fromkeys(names)
    return [unset, *(env for env in every if env != unset)]


def probe(
    settings: ProbeSettings, candidates: Sequence[Environment], run: Run
) -> Iterator[list[CollectiveRow]]:
    """The rows of each environment as it is measured; the first one is what others are compared
    with."""
    reference: list[CollectiveRow] = []
    for environment in candidates:
        output = run(
            (settings.python, str(WORKER)),
            environment,
            request_of(settings),
            settings.timeout_s + 60,
        )
        rows = parse_rows(output, environment, settings.sizes)
        reference = reference or rows
        yield [_compared(row, first) for row, first in zip(rows, reference, strict=True)]


def request_of(settings: ProbeSettings) -> str:
    """What the worker reads on standard input."""
    return json.dumps({
        "backend": settings.backend,
        "ranks": settings.ranks,
        "sizes": list(settings.sizes),
        "warm_up": settings.warm_up,
        "repeats": settings.repeats,
        "timeout_s": settings.timeout_s,
    })  # fmt: skip


def parse_rows(output: str, environment: Environment, sizes: Sequence[int]) -> list[CollectiveRow]:
    """One row per size from the worker's output; rows with an error when it gave no answer."""
    answer = marked_json(output, MARKER)
    if not isinstance(answer, dict):
        answer = {"error": "the worker gave no answer"}
    error = str(answer.get("error") or "")
    by_size = {row["bytes"]: row for row in answer.get("rows", []) if _is_row(row)}
    return [_row(environment, size, by_size.get(size), error) for size in sizes]


def hopeless(
    rows: Sequence[CollectiveRow], margin: float = 0.05
) -> list[Mapping[str, str | None]]:
    """Environments that failed somewhere, gave wrong data, or are slower at every size.

    Args:
        rows: all rows of a probe.
        margin: how much slower than the unchanged environment, at every size, is hopeless.
    """
    groups: dict[str, list[CollectiveRow]] = {}
    for row in rows:
        groups.setdefault(json.dumps(dict(row.environment), sort_keys=True), []).append(row)
    return [group[0].environment for group in groups.values() if _is_hopeless(group, margin)]


def _is_hopeless(group: Sequence[CollectiveRow], margin: float) -> bool:
    if any(row.error for row in group):
        return True
    ratios = [row.ratio for row in group if row.ratio is not None]
    return bool(ratios) and min(ratios) > 1 + margin


def _is_row(row: object) -> bool:
    return isinstance(row, dict) and bool(row.get("seconds")) and "bytes" in row


def _row(
    environment: Environment, size: int, found: Mapping[str, Any] | None, error: str
) -> CollectiveRow:
    if found is None:
        return CollectiveRow(environment, size, error=error or "not measured")
    if not found.get("correct", False):
        return CollectiveRow(environment, size, error="wrong sums: unsafe on this machine")
    micro = sorted(1e6 * second for second in found["seconds"])
    p95 = micro[min(len(micro) - 1, int(0.95 * len(micro)))]
    return CollectiveRow(environment, size, statistics.median(micro), p95)


def _compared(row: CollectiveRow, reference: CollectiveRow) -> CollectiveRow:
    if row.median_us is None or not reference.median_us:
        return row
    ratio = row.median_us / reference.median_us
    return CollectiveRow(row.environment, row.bytes, row.median_us, row.p95_us, ratio)
