"""Owns untimed launches: a second look at a measured server, with logs and timers that no measured
launch may have. What it finds is added to the trial's record; it never ends a study.

A launch of a large model is expensive, so by default only finalists are looked at, each NCCL
environment once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tuner.args import ServerArgs
from tuner.config.engine import EngineConfig, FakeConfig, SglangConfig, VllmConfig
from tuner.config.environment import is_nccl
from tuner.engines.base import Engine
from tuner.engines.nccl_log import DEBUG, findings, parse_nccl_log
from tuner.errors import TrialFailure
from tuner.events import Notice
from tuner.host.gpus import list_gpus
from tuner.measure.records import Prompt
from tuner.search.bench import LaunchPlan, ServerRun, never
from tuner.search.launching import run_launch
from tuner.search.recording import finite
from tuner.search.session import Session
from tuner.store.files import write_text
from tuner.store.plain import dump_json
from tuner.store.record import TrialRecord

Moment = Literal["every", "finalists"]
MOST_LOG_BYTES = 4 << 20
"""Of each process's NCCL log; what is beyond repeats what is before."""


@dataclass(frozen=True, slots=True)
class Looks:
    """At which moment NCCL's log is read and the parts of a step are timed; "": never."""

    nccl: str
    cycle: str


def looks_of(config: EngineConfig, *, has_gpus: bool) -> Looks:
    """What an engine section asks for."""
    nccl = cycle = "off"
    if isinstance(config, SglangConfig | VllmConfig | FakeConfig):
        nccl = config.nccl_probe
    if isinstance(config, SglangConfig | FakeConfig):
        cycle = config.measure_cycle
    if cycle == "auto":
        cycle = "finalists" if has_gpus else "off"
    return Looks(*("" if word == "off" else word for word in (nccl, cycle)))


def planned_looks(
    engine: Engine, looks: Looks, servers: Sequence[ServerArgs], most: Mapping[str, int]
) -> int:
    """Untimed launches of a study at most.

    Args:
        engine: of the study.
        looks: what its section asks for.
        servers: those that it may launch.
        most: trials by the moment at which they are looked at.
    """
    environments = {engine.without_speculation(s).digest for s in servers if _has_nccl(s)}
    drafting = sum(map(engine.is_speculative, servers)) if engine.timing_env else 0
    wanted = ((looks.nccl, len(environments)), (looks.cycle, drafting))
    return sum(min(count, most.get(moment, 0)) for moment, count in wanted)


def look_closer(
    session: Session,
    records: Sequence[TrialRecord],
    moment: Moment,
    has_time: Callable[[], bool] = lambda: True,
) -> list[TrialRecord]:
    """The records with what the untimed launches of this moment found, stored already.

    `has_time` is asked before every launch: what is only looked at must not use up the time of
    what is measured.
    """
    looks = looks_of(session.loaded.config.engine, has_gpus=bool(list_gpus()))
    if moment not in (looks.nccl, looks.cycle):
        return list(records)
    return [_look(session, record, looks, moment) if has_time() else record for record in records]


def _look(session: Session, record: TrialRecord, looks: Looks, moment: Moment) -> TrialRecord:
    if record.state != "complete" or record.is_synthetic:
        return record
    args = session.candidates.args_of(record.params)
    said, cycle = list[str](), dict[str, float]()
    if looks.nccl == moment and _has_nccl(args):
        said = nccl_findings(session, args, record.number)
    if looks.cycle == moment and not record.cycle:
        cycle = dict(timed_cycle(session, args, record.number))
    with session.lock:  # meanwhile a neighbour's launch may have corrected the record for drift
        newest = next(r for r in session.history.records if r.number == record.number)
        warnings = list(dict.fromkeys([*newest.warnings, *said]))
        changes = {"warnings": warnings, "cycle": cycle or newest.cycle}
        if newest.model_copy(update=changes) == newest:
            return newest
        found = session.opened.amend(record.number, changes)
        session.history.replace(found)
    return found


def _has_nccl(args: ServerArgs) -> bool:
    return any(is_nccl(name) and value for name, value in args.env.items())


# ---- NCCL's own log ----------------------------------------------------------------------------
def nccl_findings(session: Session, args: ServerArgs, number: int) -> list[str]:
    """What of a server's NCCL variables had no effect; each environment is launched once.

    The server drafts nothing: how its ranks reduce does not depend on speculation.
    """
    neutral = session.bench.engine.without_speculation(args)
    folder = session.opened.results.untimed_folder(f"nccl-{neutral.digest}")
    report = folder / "report.json"
    if not report.is_file():
        asked = " ".join(f"{n}={v}" for n, v in sorted(args.env.items()) if is_nccl(n) and v)
        _tell(session, "info", f"untimed launch: NCCL's own log with {asked}")
        for late in folder.glob("nccl.*.log"):  # of a launch that failed
            late.unlink()
        env = {**neutral.env, **DEBUG, "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p.log")}
        observed = ServerArgs(neutral.flags, env)
        if _launch(session, observed, folder, number, blocks=()) is None:
            return []
        found = parse_nccl_log(_logs(folder))
        without_effect = findings(found, args.env)
        document = {**found.to_json(), "findings": without_effect}
        write_text(report, dump_json(document, indent=1) + "\n")
        _tell(session, "info", found.summary if found.has_spoken else "NCCL logged nothing")
        for text in without_effect:
            _tell(session, "warning", text)
    return [str(text) for text in json.loads(report.read_text())["findings"]]


def _logs(folder: Path) -> str:
    texts = []
    for path in sorted(folder.glob("nccl.*.log")):
        with path.open("rb") as handle:
            texts.append(handle.read(MOST_LOG_BYTES).decode(errors="replace"))
    return "\n".join(texts)


# ---- the parts of a step -----------------------------------------------------------------------
def timed_cycle(session: Session, args: ServerArgs, number: int) -> Mapping[str, float]:
    """Seconds per step by part from one more launch with the engine's timers; {} without any.

    Where the timers of one server said nothing (an older version has none), no other of this
    study is launched for them.
    """
    bench = session.bench
    if not bench.engine.timing_env or not bench.engine.is_speculative(args):
        return {}
    folder = session.opened.results.untimed_folder(f"cycle-{args.digest}")
    report = folder / "report.json"
    if any(_cycle_in(each) == {} for each in folder.parent.glob("cycle-*/report.json")):
        return {}
    if not report.is_file():
        _tell(session, "info", f"untimed launch: the parts of a step of trial {number}")
        observed = ServerArgs(args.flags, {**args.env, **bench.engine.timing_env})
        run = _launch(session, observed, folder, number, blocks=bench.workload.blocks[:1])
        if run is None:
            return {}
        write_text(report, dump_json({"cycle": finite(run.cycle)}, indent=1) + "\n")
    return _cycle_in(report)


def _cycle_in(report: Path) -> dict[str, float]:
    return {str(name): float(s) for name, s in json.loads(report.read_text())["cycle"].items()}


def _launch(
    session: Session,
    args: ServerArgs,
    folder: Path,
    number: int,
    blocks: tuple[tuple[Prompt, ...], ...],
) -> ServerRun | None:
    """A launch that is not scored; None when it failed, which is told and no more."""
    bench, run = session.bench, ServerRun()
    load = bench.objective.load
    plan = LaunchPlan(number, args, blocks, (load,), folder, f"untimed-{number}")
    try:
        run_launch(bench, plan, run, never)
    except TrialFailure as failure:
        _tell(session, "warning", f"the untimed launch failed: {failure.reason}")
        return None
    return run


def _tell(session: Session, level: Literal["info", "warning"], text: str) -> None:
    session.bench.observer(Notice(level, text))
