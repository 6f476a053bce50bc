"""Owns the stored form of a trial, a confirmation launch and a recommendation: versioned JSON.

These models are also the `--json` documents of the command line: a field added here is there.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from tuner.store.plain import dump_json

RECORD_VERSION = 1
FAITHFUL = ("match", "alike", "not checked", "off")
"""What `fidelity` says of answers that do not differ from the baseline's, or were not compared."""

State = Literal["baseline", "complete", "pruned", "failed", "infeasible", "reused"]


def _read_number(value: Any) -> Any:
    return math.nan if value is None else value


def _write_number(value: float) -> float | None:
    return value if math.isfinite(value) else None


Number = Annotated[
    float,
    BeforeValidator(_read_number),
    PlainSerializer(_write_number, return_type=float | None, when_used="json"),
]
"""A measured number; what is not finite is `null` in JSON (never `NaN`) and NaN when read back."""


class Record(BaseModel):
    """Base of stored documents: frozen; unknown keys of newer versions are ignored on reading."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def record_text(record: Record, *, indent: int | None = None) -> str:
    """Strict JSON of a stored document, whatever its texts hold."""
    return dump_json(record.model_dump(mode="python"), indent=indent)


class ArgsRecord(Record):
    """A `ServerArgs` as JSON."""

    flags: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, str | None] = Field(default_factory=dict)


class AcceptanceRecord(Record):
    """An `Acceptance` as JSON (see measure.records)."""

    length: Number
    rate: float | None = None
    per_position: list[Number] = Field(default_factory=list)
    steps: int | None = None
    drafted: int | None = None
    accepted: int = 0
    basis: str = ""
    is_synthetic: bool = False
    by_category: dict[str, Number] = Field(default_factory=dict)


class LoadPointRecord(Record):
    """One load point of a trial: pooled metrics and the per-block series.

    `block_counts` holds per block what was counted: tokens, seconds, requests, steps, drafted,
    accepted; counters that the engine does not report are null.
    """

    load: str
    metrics: dict[str, Number] = Field(default_factory=dict)
    per_block: dict[str, list[Number]] = Field(default_factory=dict)
    block_counts: dict[str, list[Number]] = Field(default_factory=dict)
    requests: int = 0
    errors: int = 0
    acceptance: AcceptanceRecord | None = None


class Seconds(Record):
    """Where a trial's wall time went."""

    launch: Number = 0.0
    warm_up: Number = 0.0
    measure: Number = 0.0
    stop: Number = 0.0
    total: Number = 0.0


class PruneDecision(Record):
    """Why a trial was stopped early: the paired comparison it lost."""

    after_block: int
    blocks: int
    ratio: Number
    upper: Number
    margin: Number
    reference: int


class TrialRecord(Record):
    """All about one finished trial.

    `vs_baseline` is the paired ratio, above 1 is better whatever the objective's direction;
    `predicted` is what the sampler expected it to be. `drift` is how much faster (below 0:
    slower) the machine was at this launch than usual, as the baseline's launches around it say:
    it is taken out of `vs_baseline`; null where none was found.
    `digest` is of the requested arguments, `effective_digest` of what the server really used.
    `cycle` is the measured time per step in seconds by part (draft, verify, other), if known.
    """

    version: int = RECORD_VERSION
    number: int
    state: State
    failure: str | None = None
    reason: str = ""
    hint: str = ""
    params: dict[str, Any] = Field(default_factory=dict)
    requested_args: ArgsRecord = ArgsRecord()
    effective_args: dict[str, Any] = Field(default_factory=dict)
    digest: str = ""
    effective_digest: str = ""
    twin_of: int | None = None
    value: float | None = None
    half_width: float | None = None
    vs_baseline: float | None = None
    drift: float | None = None
    predicted: float | None = None
    acceptance_length: float | None = None
    acceptance_per_position: list[Number] = Field(default_factory=list)
    acceptance: AcceptanceRecord | None = None
    metrics: dict[str, Number] = Field(default_factory=dict)
    load_points: list[LoadPointRecord] = Field(default_factory=list)
    constraints: dict[str, Number] = Field(default_factory=dict)
    cycle: dict[str, Number] = Field(default_factory=dict)
    seconds: Seconds = Seconds()
    warnings: list[str] = Field(default_factory=list)
    prune: PruneDecision | None = None
    is_synthetic: bool = False
    is_lossy: bool = False
    is_simulated: bool = False
    is_draft_fault: bool = False
    outputs_match: float | None = None
    started_utc: str = ""
    finished_utc: str = ""
    fingerprint: str = ""
    log_path: str = ""
    worker: str = ""

    @property
    def is_launch(self) -> bool:
        """True when the trial started a server."""
        return self.state not in ("infeasible", "reused")

    def at(self, load: str) -> LoadPointRecord | None:
        """The trial at a load point, by its label; the first one where none is named."""
        return next((point for point in self.load_points if not load or point.load == load), None)

    def series(self, metric: str, load: str) -> list[float]:
        """A metric by block at a load point; [] where it was not measured."""
        point = self.at(load)
        return list(point.per_block.get(metric, ())) if point else []


class ConfirmationLaunch(Record):
    """One launch of the confirmation: which server, in which round and order, its values.

    `per_block` holds the objective per held-out block, `block_counts` what was counted in each
    (as in `LoadPointRecord`); `digest` names the server; `campaign`
    names the set of finalists, so that launches of an earlier set are never mixed in. `loads`
    names the load of each block where it moved within the launch; empty: the objective's.
    """

    campaign: str = ""
    round: int
    order: int
    trial: int
    digest: str
    value: float | None
    per_block: list[Number] = Field(default_factory=list)
    block_counts: dict[str, list[Number]] = Field(default_factory=dict)
    loads: list[str] = Field(default_factory=list)
    metrics: dict[str, Number] = Field(default_factory=dict)
    acceptance_length: float | None = None
    failure: str | None = None
    reason: str = ""
    seconds: Seconds = Seconds()
    outputs_match: float | None = None


class FinalistRecord(Record):
    """One finalist after the confirmation: its ratio to the baseline with a 95 % interval."""

    trial: int
    digest: str
    ratio: Number
    low: Number
    high: Number
    launches: int
    constraints_met: bool = True
    fidelity: str = "not checked"
    value: float | None = None


class ScheduleStep(Record):
    """The depth confirmed at one load; the interval is its gain over the baseline there, or for
    depth 0 that of the best server that does not pay."""

    load: str
    concurrency: int
    depth: int
    ratio: Number
    low: Number
    high: Number


TABLE = -1
"""Stands for a table of depths among trial numbers: it is no trial of the search."""


class ScheduleRecord(Record):
    """A table of depths by load, measured against the best single server under a moving load.

    `single` is that server's trial; `ratio` is the table to it; `files` are what `server_args`
    refer to, lying beside them.
    """

    verdict: Literal["use", "keep_single"]
    steps: list[ScheduleStep] = Field(default_factory=list)
    single: int = 0
    single_depth: int = 0
    sweep: list[str] = Field(default_factory=list)
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    launches: int = 0
    server_args: ArgsRecord = ArgsRecord()
    digest: str = ""
    files: dict[str, str] = Field(default_factory=dict)
    fidelity: str = "not checked"
    reasons: list[str] = Field(default_factory=list)
    is_simulated: bool = False


class RecommendationRecord(Record):
    """The end of a study: use a server, or keep the baseline.

    `decided_by` says what chose among the servers that beat the baseline: "launches", "model"
    (where launches cannot tell them apart), "launches and model", or "simplicity"; "" for none.
    """

    version: int = RECORD_VERSION
    verdict: Literal["use", "keep_baseline"]
    trial: int | None = None
    server_args: ArgsRecord = ArgsRecord()
    digest: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    constraints_met: bool = True
    fidelity: str = "not checked"
    held_out: bool = True
    smallest_detectable: float | None = None
    reasons: list[str] = Field(default_factory=list)
    decided_by: str = ""
    finalists: list[FinalistRecord] = Field(default_factory=list)
    is_simulated: bool = False
    objective: str = ""
    load: str = ""
    finished_utc: str = ""
    schedule: ScheduleRecord | None = None
