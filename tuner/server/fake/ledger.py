"""Owns what the fake server knows about itself: counters, and the true timings per request.

Stamps are `time.perf_counter()` (CLOCK_MONOTONIC on Linux): a client on the same machine can
subtract its own from them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.server.fake.behaviour import Behaviour


@dataclass(slots=True)
class Truth:
    """What really happened to one request, in the server's clock."""

    number: int
    prompt: str
    arrived_s: float
    running: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    first_s: float | None = None
    last_s: float | None = None
    end_s: float | None = None
    output_tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    outcome: str = "running"
    chunk_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Ledger:
    """All requests of one launch, and the counters the metrics page shows."""

    launch: str
    started_s: float
    requests: list[Truth] = field(default_factory=list)
    running: int = 0
    peak_running: int = 0
    has_collapsed: bool = False
    seen_prompts: set[str] = field(default_factory=set)
    steps: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    per_position: list[int] = field(default_factory=list)
    predicted: int = 0

    def count_step(self, accepted: int, drafted: int) -> None:
        """One decoding step that wrote 1 + accepted tokens."""
        self.steps += 1
        self.predicted += 1 + accepted
        if drafted:
            self.drafts += 1
            self.drafted += drafted
            self.accepted += accepted
            if len(self.per_position) < accepted:
                self.per_position += [0] * (accepted - len(self.per_position))
            for position in range(accepted):
                self.per_position[position] += 1

    def to_json(self) -> dict[str, Any]:
        """What GET /truth answers."""
        return {
            "clock": "CLOCK_MONOTONIC",
            "launch": self.launch,
            "peak_running": self.peak_running,
            "requests": [asdict(truth) for truth in self.requests],
        }


def timer_page(ledger: Ledger, behaviour: Behaviour, draft_s: float, verify_s: float) -> str:
    """Seconds by part of a step, as SGLang's device timer counts them."""
    name = f"{behaviour.metrics_prefix}forward_execution_seconds_total"
    calls = f"{behaviour.metrics_prefix}spec_verify_calls_total"
    parts = {
        "eagle_draft": draft_s * ledger.drafts,
        "target_verify": verify_s * ledger.drafts,
        "extend": behaviour.ttft_ms / 1000 * len(ledger.requests),
    }
    lines = [f"# TYPE {calls} counter", f"{calls} {ledger.drafts}", f"# TYPE {name} counter"]
    lines += [f'{name}{{category="{part}"}} {spent}' for part, spent in parts.items()]
    return "\n".join(lines) + "\n"


def metrics_page(ledger: Ledger, behaviour: Behaviour) -> str:
    """The Prometheus page; drafting counters only when there was any drafting."""
    prefix = behaviour.metrics_prefix
    values = {
        "tokens_predicted_total": ledger.predicted,
        "n_decode_total": ledger.steps,
        "requests_total": len(ledger.requests),
    }
    if behaviour.report_drafts and ledger.drafts:
        values |= {
            "spec_decode_num_drafts_total": ledger.drafts,
            "spec_decode_num_draft_tokens_total": ledger.drafted,
            "spec_decode_num_accepted_tokens_total": ledger.accepted,
        }
    lines = []
    for name, value in values.items():
        lines += [f"# TYPE {prefix}{name} counter", f"{prefix}{name} {value}"]
    if behaviour.report_drafts and ledger.drafts:
        name = f"{prefix}spec_decode_num_accepted_tokens_per_pos_total"
        lines.append(f"# TYPE {name} counter")
        lines += [f'{name}{{position="{i}"}} {n}' for i, n in enumerate(ledger.per_position)]
    if behaviour.metrics_broken:
        lines.insert(2, f"{prefix}broken{{position= 1.2.3 oops")
    return "\n".join(lines) + "\n"
