"""Owns every error the product raises and every way a trial can fail; knows nothing else.

TunerError                    exit code and hint for the command line
├── UsageError          2     a command was called with arguments that cannot work
├── ConfigError         2     one or more Problems in a study or space file, all at once
├── ExportRefused       2     a result that may not be exported as it is
├── NoFeasibleServer    1     the study ended and no server satisfied the constraints
├── HostError           3     the machine cannot be used (stray server, memory held, disk full)
├── EngineError         3     the engine is missing, too old or misbehaves before any trial
├── StoreError          3     the database or results folder cannot be read or written
├── StudyMismatch       4     the stored study was made with something else
└── Interrupted       130     the user stopped the run; state is saved
TrialFailure                  one trial ended without a value; caught at the trial boundary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class TunerError(Exception):
    """Base of all errors shown to users: a message, a hint in the imperative, an exit code."""

    exit_code = 3

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(TunerError):
    """A command was called with arguments that cannot work."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file, with its place (1-based line and column)."""

    file: str
    line: int
    column: int
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: "
        text = place + (f"{self.path}: " if self.path else "") + self.message
        return f"{text}\n  {self.hint}" if self.hint else text


class ConfigError(TunerError):
    """All problems of a study or space file at once."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        count = f"{len(problems)} error{'s' if len(problems) != 1 else ''}"
        super().__init__(f"{count}, nothing was launched.")
        self.problems = tuple(problems)


class ExportRefused(TunerError):
    """A result that may not be exported as it is: unconfirmed, synthetic, replayed, unfaithful."""

    exit_code = 2


class NoFeasibleServer(TunerError):
    """The study ended and no server, not even the baseline, satisfied the constraints."""

    exit_code = 1


class HostError(TunerError):
    """The machine cannot be used as it is."""


class EngineError(TunerError):
    """The engine is missing, too old, or misbehaves before any trial."""


class StoreError(TunerError):
    """The database or the results folder cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which a stored study and the present one differ."""

    field: str
    stored: str
    present: str


class StudyMismatch(TunerError):
    """The stored study was made with another space, objective, model, engine or host."""

    exit_code = 4

    def __init__(self, name: str, differences: Sequence[Difference], hint: str) -> None:
        lines = [f"  {d.field}: stored {d.stored}, now {d.present}" for d in differences]
        super().__init__("\n".join([f"study {name} was made with something else:", *lines]), hint)
        self.differences = tuple(differences)


class Interrupted(TunerError):
    """The user stopped the run; everything measured is saved."""

    exit_code = 130


class FailureKind(Enum):
    """Why a trial has no value. The fields say what the search does about it.

    The configuration's fault is told to the sampler (PRUNED with a violated constraint); the
    host's fault is not (FAIL). `retries` is how often the same server may be launched again.
    """

    INFEASIBLE = ("infeasible", True, 0)
    REJECTED_FLAG = ("rejected_flag", True, 0)
    LAUNCH_CRASH = ("launch_crash", True, 0)
    OUT_OF_MEMORY = ("out_of_memory", True, 0)
    NOT_READY = ("not_ready", True, 0)
    DRAFT_INACTIVE = ("draft_inactive", True, 0)
    DIED = ("died", True, 0)
    STALLED = ("stalled", True, 0)
    REQUEST_ERRORS = ("request_errors", True, 0)
    IMPLAUSIBLE = ("implausible", False, 1)
    OUTPUT_MISMATCH = ("output_mismatch", True, 0)
    PORT_IN_USE = ("port_in_use", False, 2)
    NOT_STOPPED = ("not_stopped", False, 0)
    INTERRUPTED = ("interrupted", False, 1)
    UNEXPECTED = ("unexpected", False, 0)

    def __init__(self, label: str, is_config_fault: bool, retries: int) -> None:
        self.label = label
        self.is_config_fault = is_config_fault
        self.retries = retries

    @classmethod
    def from_label(cls, label: str) -> FailureKind:
        """The kind stored under this label; raises KeyError for an unknown one."""
        return {kind.label: kind for kind in cls}[label]


class TrialFailure(Exception):
    """One trial ended without a value.

    `reason` is one line (an engine's own words where it gave any); `is_draft_fault` marks a
    failure that every server with this draft would share (vocabulary mismatch, missing weights),
    so that the search stops launching speculative servers.
    """

    def __init__(
        self,
        kind: FailureKind,
        reason: str,
        *,
        hint: str = "",
        is_draft_fault: bool = False,
    ) -> None:
        super().__init__(f"{kind.label}: {reason}")
        self.kind = kind
        self.reason = reason
        self.hint = hint
        self.is_draft_fault = is_draft_fault
