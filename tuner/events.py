"""Owns what happens during a run, as plain values; the command line and logs observe them.

Nothing below `cli/` prints: it emits one of these to an `Observer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

Stage = Literal["preparing", "launching", "warming_up", "measuring", "stopping"]
TrialStateName = Literal["baseline", "complete", "pruned", "failed", "infeasible", "reused"]


@dataclass(frozen=True, slots=True)
class StudyOpened:
    """The study is ready to run: how many trials it holds, what remains of the budget."""

    name: str
    resumed: bool
    finished_trials: int
    launches: int
    max_launches: int
    wall_s: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """A trial was chosen; `predicted` is the model's guess of its value, if it has one."""

    number: int
    params: Mapping[str, Any]
    is_baseline: bool = False
    predicted: float | None = None


@dataclass(frozen=True, slots=True)
class StageChanged:
    """The running trial (or confirmation launch) entered a stage."""

    number: int
    stage: Stage
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RequestsProgressed:
    """Requests of the current block (counted from 0) that have finished; at most a few per
    second are emitted."""

    number: int
    block: int
    blocks: int
    done: int
    total: int
    errors: int


@dataclass(frozen=True, slots=True)
class BlockMeasured:
    """`block` blocks are done; `value` is the objective so far, `vs_baseline` its ratio so far."""

    number: int
    block: int
    blocks: int
    value: float | None
    vs_baseline: float | None


@dataclass(frozen=True, slots=True)
class TrialFinished:
    """A trial is stored: what its permanent line shows; `broken` are the outcome constraints
    that it does not satisfy."""

    number: int
    state: TrialStateName
    params: Mapping[str, Any]
    value: float | None = None
    half_width: float | None = None
    vs_baseline: float | None = None
    acceptance_length: float | None = None
    ttft_p95_ms: float | None = None
    seconds: float = 0.0
    reason: str = ""
    failure: str | None = None
    predicted: float | None = None
    warnings: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfirmationProgressed:
    """One launch of the confirmation is done; rounds count from 0, trial 0 is the baseline."""

    round: int
    rounds: int
    trial: int
    value: float | None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know that belongs to no single trial."""

    level: Literal["info", "warning"]
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run ended; `why` says what ended it."""

    why: str
    launches: int
    wall_s: float


Event: TypeAlias = (
    StudyOpened
    | TrialStarted
    | StageChanged
    | RequestsProgressed
    | BlockMeasured
    | TrialFinished
    | ConfirmationProgressed
    | Notice
    | RunFinished
)


class Observer(Protocol):
    """Receives every event of a run, in order, on the thread of the run; must not raise."""

    def __call__(self, event: Event) -> None:
        """Take note of one event."""
        ...


def ignore(event: Event) -> None:
    """The observer that takes no note."""
