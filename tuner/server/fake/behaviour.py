"""Owns `Behaviour`: everything the fake server can be told to do, loaded from JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the fake server does; the defaults are a fast and healthy server.

    Speed (see speed.py for the formula):
        ttft_ms, prefill_ms_per_token: time to the first token.
        step_ms: one plain decoding step; 0 streams as fast as possible.
        jitter: relative standard deviation of a step. concurrency_slope: relative slowdown of a
            step per additional running request. verify_load: the same for verification only.
        draft_cost, verify_cost: share of `step_ms` per draft step and per verified token.
        acceptance: chance that draft position 1, 2, … is accepted, given the one before was.
        acceptance_loss_per_request: how much that chance falls with every request served.
        launch_drift: relative standard deviation of a speed factor drawn once per launch;
            launch_seed: makes it reproducible.
        drift_per_launch: each launch is slower than the one before by this share; needs
            state_dir.
        slow_first, slow_first_factor: so many requests are so much slower.
        slow_after_s, slow_after_factor: the same from so many seconds after the start;
            slow_from: from this request on.
        collapse_at_concurrency, collapse_factor: slower for good once so many run at once.
        cache_speedup: a prompt seen before has its TTFT divided by this (1: no cache).
        tokens_per_chunk: merge or split into chunks of so many tokens; None: one per step.

    Text:
        answer_tokens: length of every answer; None: 32 to 95, by prompt.
        flip_share: share of prompts whose late tokens differ from launch to launch.
        garbage: random words; garbage_env: only when `NAME=PART` matches the environment;
            garbage_speedup: and so much faster then.
        cumulative_text: each chunk repeats the whole text so far.

    Reports:
        usage: "last" (with the finish reason), "empty" (own chunk without choices), "missing".
        usage_offset: added to the reported completion tokens.
        nan_timings: timings hold NaN. report_drafts: counters of drafting are reported at all.
        metrics_prefix, metrics_status, metrics_broken: the Prometheus page.
        nccl_log: written to NCCL_DEBUG_FILE, after a line per NCCL variable, at the start.
        served_model: another model id than asked for. info: added to /server_info.

    Requests that fail:
        reject_share: share of requests answered 503 at once.
        error_after_tokens, error_share: an error event inside a stream of status 200.
        not_found: generation answers 200 with {"detail": "Not Found"}.
        silent_after: from this request on nothing is answered, health stays 200.
        silent_at_concurrency: the same once so many run at once.
        die_at_request, die_at_concurrency, die_signal, die_code: the process ends.
        dying_s: it logs exit_log and lives so long before it dies, its requests unanswered.
        worker_dies_at_request: its worker ends, the front stays and hangs.

    Start and end:
        load_s: seconds before it listens; load_line_every_s: a log line meanwhile.
        starting_s: seconds of 503 after it listens; early_health: health and models say 200
            meanwhile. slow_health_s: every health answer takes so long.
        never_ready_unless: `NAME=VALUE` in the environment, or it never listens.
        exit_code, exit_log, exit_after_s: log this text and exit instead of serving.
        address_in_use_every: every n-th launch fails so; needs state_dir.
        startup_log: text logged first. log_flood_bytes: logged at the first request.
        log_requests: one access line per request. print_env: variables logged at start.

    Processes:
        trap_sigterm: SIGTERM is ignored. worker: a worker process; worker_env: environment
            it gets on top (null removes). double_fork: a detached grandchild holds the port.
        surviving_child: a child in its own session that ignores SIGTERM.
        shm_leak_bytes: a shared-memory file is created, and removed only on SIGTERM.
        state_dir: folder where launches are counted.
        overrides: changes for some launches only (see overrides.py).
    """

    ttft_ms: float = 2.0
    prefill_ms_per_token: float = 0.0
    step_ms: float = 1.0
    jitter: float = 0.0
    concurrency_slope: float = 0.0
    verify_load: float = 0.0
    draft_cost: float = 0.08
    verify_cost: float = 0.03
    acceptance: tuple[float, ...] = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
    acceptance_loss_per_request: float = 0.0
    launch_drift: float = 0.0
    launch_seed: int | None = None
    drift_per_launch: float = 0.0
    slow_first: int = 0
    slow_first_factor: float = 5.0
    slow_after_s: float | None = None
    slow_from: int | None = None
    slow_after_factor: float = 2.0
    collapse_at_concurrency: int | None = None
    collapse_factor: float = 3.0
    cache_speedup: float = 1.0
    tokens_per_chunk: int | None = None

    answer_tokens: int | None = None
    flip_share: float = 0.0
    garbage: bool = False
    garbage_env: str | None = None
    garbage_speedup: float = 1.3
    cumulative_text: bool = False

    usage: str = "empty"
    usage_offset: int = 0
    nan_timings: bool = False
    report_drafts: bool = True
    metrics_prefix: str = "fake:"
    metrics_status: int = 200
    metrics_broken: bool = False
    nccl_log: str = ""
    served_model: str | None = None
    info: dict[str, Any] = field(default_factory=dict)

    reject_share: float = 0.0
    error_after_tokens: int | None = None
    error_share: float = 1.0
    not_found: bool = False
    silent_after: int | None = None
    silent_at_concurrency: int | None = None
    die_at_request: int | None = None
    die_at_concurrency: int | None = None
    die_signal: str | None = None
    die_code: int = 1
    dying_s: float = 0.0
    worker_dies_at_request: int | None = None

    load_s: float = 0.0
    load_line_every_s: float | None = None
    starting_s: float = 0.0
    early_health: bool = False
    slow_health_s: float = 0.0
    never_ready_unless: str | None = None
    exit_code: int | None = None
    exit_log: str = ""
    exit_after_s: float = 0.0
    address_in_use_every: int | None = None
    startup_log: str = ""
    log_flood_bytes: int = 0
    log_requests: bool = False
    print_env: tuple[str, ...] = ()

    trap_sigterm: bool = False
    worker: bool = False
    worker_env: dict[str, str | None] = field(default_factory=dict)
    double_fork: bool = False
    surviving_child: bool = False
    shm_leak_bytes: int = 0
    state_dir: str | None = None
    overrides: tuple[dict[str, Any], ...] = ()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Behaviour:
        """A behaviour from a plain dictionary.

        Raises:
            ValueError: an unknown key.
        """
        return cls().changed(data)

    def changed(self, data: dict[str, Any]) -> Behaviour:
        """A copy with some fields of a plain dictionary.

        Raises:
            ValueError: an unknown key.
        """
        known = {f.name for f in fields(self)}
        if unknown := sorted(set(data) - known):
            raise ValueError(f"behaviour: keys must be those of Behaviour, got {unknown}.")
        lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
        return replace(self, **{**data, **lists})


def load_behaviour(text: str) -> Behaviour:
    """The behaviour in a JSON text, or in the file of `@path`; "" is the default.

    Raises:
        ValueError: no JSON object, or an unknown key.
    """
    if text.startswith("@"):
        text = Path(text[1:]).read_text()
    data = json.loads(text or "{}")
    if not isinstance(data, dict):
        raise ValueError(f"behaviour: must be a JSON object, got {type(data).__name__}.")
    return Behaviour.from_json(data)


def matches_environment(condition: str, environment: dict[str, str]) -> bool:
    """True when `NAME=PART` holds: the variable is set and contains the part."""
    name, _, part = condition.partition("=")
    return name in environment and part in environment[name]
