"""Owns a launch that is measured in another process: what is said between the two.

    controller: Job ──▶                      ──▶ worker: LocalRunner.run
                ◀── Said(event)   …every event
                ◀── Judge(run, load)          after a block at the objective's load
                Verdict(stop) ──▶             or Abort, when the trial ends here
                ◀── Ended(run, failure)

The worker stops its server before it says Ended, whatever happened. Knows no transport: a
`Channel` is a pipe to a process of this machine, or queues of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from tuner import errors
from tuner.config.engine import EngineConfig
from tuner.engines.catalog import get_engine
from tuner.errors import FailureKind, Interrupted, TrialFailure, TunerError
from tuner.events import Event, ignore
from tuner.measure.records import LoadPoint
from tuner.search.bench import Bench, LaunchPlan, ServerRun, ServerRunner, StopEarly
from tuner.store.files import write_atomic

_OWN = frozenset({"started"})
"""Fields of a run that belong to the clock of its own process."""


class Channel(Protocol):
    """Two ends that exchange plain objects; `receive` raises EOFError when the other has gone."""

    def send(self, message: Any) -> None:
        """Hand a message over."""
        ...

    def receive(self) -> Any:
        """The next message."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """One launch to be measured elsewhere; `run` holds the notes and times of earlier attempts."""

    bench: Bench
    engine: EngineConfig
    plan: LaunchPlan
    run: ServerRun


@dataclass(frozen=True, slots=True)
class Said:
    """An event of the launch."""

    event: Event


@dataclass(frozen=True, slots=True)
class Judge:
    """A block is done: may the measurement go on?"""

    run: ServerRun
    load: LoadPoint


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to Judge."""

    stop: bool


@dataclass(frozen=True, slots=True)
class Abort:
    """The answer to Judge when the trial ended at the controller: stop the server, say Ended."""


@dataclass(frozen=True, slots=True)
class Files:
    """What a launch on another machine left beside its log, by name."""

    contents: Mapping[str, bytes]

    def write(self, folder: Path) -> None:
        """Keep them in the trial's folder here."""
        for name, data in self.contents.items():
            write_atomic(folder / Path(name).name, data)


@dataclass(frozen=True, slots=True)
class Ended:
    """The launch is over and its server stopped."""

    run: ServerRun
    error: WireError | None = None


@dataclass(frozen=True, slots=True)
class WireError:
    """An expected error on its way between processes."""

    name: str
    message: str
    hint: str = ""
    kind: str = ""
    is_draft_fault: bool = False

    @classmethod
    def of(cls, error: TunerError | TrialFailure) -> WireError:
        """The error as plain text."""
        if isinstance(error, TrialFailure):
            kind, fault = error.kind.label, error.is_draft_fault
            return cls("TrialFailure", error.reason, error.hint, kind, fault)
        name = "Interrupted" if isinstance(error, Interrupted) else type(error).__name__
        return cls(name, error.message, error.hint)

    def restored(self) -> TunerError | TrialFailure:
        """The error itself; a kind that cannot be built again becomes its base."""
        if self.kind:
            kind = FailureKind.from_label(self.kind)
            return TrialFailure(
                kind, self.message, hint=self.hint, is_draft_fault=self.is_draft_fault
            )
        plain = {"UsageError", "HostError", "EngineError", "StoreError", "Interrupted"}
        made = getattr(errors, self.name) if self.name in plain else TunerError
        error: TunerError = made(self.message, self.hint)
        return error


class _Aborted(Exception):
    """Unwinds a measurement whose trial ended at the controller."""


# ---- the controller's end -----------------------------------------------------------------------
def drive(channel: Channel, job: Job, bench: Bench, run: ServerRun, stop_early: StopEarly) -> None:
    """Have a job done and follow it; fills `run` as a local runner would.

    Raises:
        TrialFailure, TunerError: what the launch ended with there.
        EOFError: the worker has gone.
    """
    channel.send(job)
    ours: BaseException | None = None
    log_path: Path | None = None
    while True:
        message = channel.receive()
        if isinstance(message, Said):
            bench.observer(message.event)
        elif isinstance(message, Judge):
            take_over(run, message.run)
            answer, ours = _judged(run, message.load, stop_early)
            channel.send(answer)
        elif isinstance(message, Files):
            message.write(job.plan.folder)
            log_path = job.plan.folder / "server.log"
        elif isinstance(message, Ended):
            take_over(run, message.run)
            run.log_path = log_path or run.log_path
            if ours is not None:
                raise ours
            if message.error is not None:
                raise message.error.restored()
            return


def _judged(
    run: ServerRun, load: LoadPoint, stop_early: StopEarly
) -> tuple[Verdict | Abort, BaseException | None]:
    try:
        return Verdict(stop_early(run, load)), None
    except Exception as error:  # noqa: BLE001 - raised again once the server there is stopped
        return Abort(), error


def take_over(run: ServerRun, other: ServerRun) -> None:
    """Copy what another process measured into our own run, all but its clock."""
    for field in fields(run):
        if field.name not in _OWN:
            setattr(run, field.name, getattr(other, field.name))


def portable(bench: Bench) -> Bench:
    """A bench without what cannot leave this process: engine, observer, runner."""
    nothing: Any = None
    return replace(bench, engine=nothing, observer=ignore, runner=nothing)


# ---- the worker's end ---------------------------------------------------------------------------
def serve(channel: Channel, job: Job, runner: ServerRunner) -> None:
    """Do one job and say how it ended; the server is stopped by then."""
    bench = replace(
        job.bench,
        engine=get_engine(job.engine),
        observer=lambda event: channel.send(Said(event)),
        runner=runner,
    )
    run, error = job.run, None
    try:
        runner.run(bench, job.plan, run, _asking(channel))
    except (TrialFailure, TunerError) as caught:
        error = WireError.of(caught)
    except _Aborted:
        error = None
    channel.send(Ended(run, error))


def _asking(channel: Channel) -> Callable[[ServerRun, LoadPoint], bool]:
    def ask(run: ServerRun, load: LoadPoint) -> bool:
        channel.send(Judge(run, load))
        answer = channel.receive()
        if isinstance(answer, Abort):
            raise _Aborted
        assert isinstance(answer, Verdict)
        return answer.stop

    return ask
