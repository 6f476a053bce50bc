"""Owns a whole run: baseline, search, confirmation, recommendation. Resumes what it finds.

`run_study` is the design's data flow at its coarsest; one trial is in `trial_runner`, the
preparation in `session`, the confirmation in `confirm`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner.config.loader import LoadedStudy
from tuner.errors import (
    EngineError,
    FailureKind,
    HostError,
    Interrupted,
    NoFeasibleServer,
    TunerError,
)
from tuner.events import Notice, Observer, RunFinished, StudyOpened, ignore
from tuner.host.topology import peer_hints, read_topology
from tuner.search.bench import CrowdRunner
from tuner.search.confirm import Campaign, confirm, plan_campaign, select_finalists
from tuner.search.crew import Crew
from tuner.search.pruning import Judge, Judged, make_judge
from tuner.search.reasons import further, why_nothing
from tuner.search.recording import TrialPlan
from tuner.search.sampling import Suggester, make_suggester
from tuner.search.session import Session, open_session
from tuner.search.session_sampler import opinion_of, teach, with_left_out
from tuner.search.sharing import await_others, confirming
from tuner.search.stopping import (
    Stop,
    draft_trouble,
    drift_words,
    host_trouble,
    spent_budget,
    unfit_host,
)
from tuner.search.study import Asked
from tuner.search.trial_runner import TrialOutcome, run_trial
from tuner.search.untimed import look_closer
from tuner.search.workers import require_shared
from tuner.server.interrupts import raise_on_signals
from tuner.store.announcing import as_finished
from tuner.store.record import RecommendationRecord, TrialRecord

_READ = "Read {} and correct engine.args or engine.env."


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run ended with: every trial of the study, the verdict, why the search ended."""

    study: str
    records: tuple[TrialRecord, ...]
    recommendation: RecommendationRecord
    why: str
    launches: int
    wall_s: float


def run_study(loaded: LoadedStudy, *, observer: Observer = ignore, new: bool = False) -> RunResult:
    """Run a study to its recommendation; run again, it resumes where it was.

    Raises:
        Interrupted: the user stopped it; everything measured is stored, no server is left.
        TunerError: of the kind that says who is at fault (see errors).
    """
    with raise_on_signals(), open_session(loaded, observer, new=new) as session:
        announce(session)
        done = conclude(session, wait=True)
        assert done is not None
        return done


def join_study(loaded: LoadedStudy, *, observer: Observer = ignore) -> RunResult | None:
    """Be one more worker of a study on a shared database, until its search has ended.

    Returns:
        The end of the run; None when another worker confirms.

    Raises:
        UsageError: only one tuner may use the study's database.
        Interrupted, TunerError: as `run_study`.
    """
    require_shared(loaded.config.name, loaded.config.storage)
    with raise_on_signals(), open_session(loaded, observer, new=False) as session:
        announce(session)
        return conclude(session, wait=False)


def conclude(session: Session, *, wait: bool) -> RunResult | None:
    """Search to the end, then confirm; None when another worker does and `wait` is False."""
    while True:
        stop = search(session)
        with confirming(session, wait=wait) as is_mine:
            if not is_mine:
                wall = time.monotonic() - session.started
                why = f"{stop.why}; another worker confirms"
                session.bench.observer(RunFinished(why, session.history.launches, wall))
                return None
            if await_others(session, lambda: reason_to_stop(session) is None):
                continue
            recommendation = keep_verdict(session, confirm_search(session, stop))
        return finish(session, recommendation, stop.why)


def announce(session: Session) -> None:
    """Tell the observer what is about to run."""
    config, opened = session.loaded.config, session.opened
    session.bench.observer(
        StudyOpened(
            name=opened.name,
            resumed=opened.resumed,
            finished_trials=len(session.history.records),
            launches=session.history.launches,
            max_launches=config.budget.launches,
            wall_s=config.budget.wall,
            notes=tuple(opened.notes),
        )
    )


# ---- the search ------------------------------------------------------------------------------
def search(session: Session) -> Stop:
    """Trial after trial until something ends the search; says what.

    Raises:
        EngineError: the baseline itself does not run.
        HostError: launches fail alike, whatever the server.
    """
    suggester = session.suggester = make_suggester(session.ground)
    judge = make_judge(session.loaded.config.search, judged_by(session))
    runner, bench = session.bench.runner, session.bench
    if not isinstance(runner, CrowdRunner) or runner.seats == 1:
        return work(session, suggester, judge)

    def thread(observer: Observer, is_over: Callable[[], bool]) -> Stop:
        session.bench = replace(bench, observer=observer)
        return work(session, suggester, judge, is_over)

    try:
        return Crew(runner, thread).search(bench.observer)
    finally:
        session.bench = bench


def work(
    session: Session,
    suggester: Suggester,
    judge: Judge,
    is_over: Callable[[], bool] = lambda: False,
) -> Stop:
    """One trial after the other until something ends the search; says what."""
    while not is_over():
        with session.lock:
            chosen = next_trial(session, suggester)
        if isinstance(chosen, Stop):
            return chosen
        outcome = run_asked(session, chosen, judge)
        with session.lock:
            keep(session, outcome)
            if chosen.is_baseline:
                require_baseline(session, outcome.record)
                settle(session)
        look_closer(session, [outcome.record], "every", lambda: has_time(session))
    return Stop("the search ended")


def next_trial(session: Session, suggester: Suggester) -> Asked | Stop:
    """The next trial to run, or why there is none."""
    session.refresh()
    stop = reason_to_stop(session)
    if stop is not None:
        return with_left_out(stop, suggester)
    queue_baseline_when_due(session)
    teach(session, suggester)
    asked = session.opened.ask(session.ground, suggester)
    if asked is not None:
        return asked
    return Stop(getattr(suggester, "why", "") or "every distinct server was tried")


def judged_by(session: Session) -> Judged:
    """What the pruner compares."""
    objective = session.bench.objective
    blocks = len(session.bench.workload.blocks)
    return Judged(objective.metric, objective.load.label, objective.maximize, blocks)


def reason_to_stop(session: Session) -> Stop | None:
    """The first reason to launch nothing more; raises HostError when the host is at fault."""
    config, history = session.loaded.config, session.history
    if not history.baselines:
        return None
    trouble = host_trouble(history)
    if trouble:
        raise HostError(trouble.why, trouble.hint)
    draft = draft_trouble(session.bench.engine, history, config.search.keep_going)
    if draft:
        session.bench.observer(Notice("warning", draft.why, draft.hint))
        return draft
    launches = history.launches + len(session.opened.running())
    return spent_budget(launches, config.budget.launches, wall_left(session))


def wall_left(session: Session) -> float | None:
    """Seconds the search may still use: the wall budget less what the confirmation will take."""
    config = session.loaded.config
    if config.budget.wall is None:
        return None
    launches = [r.seconds.total for r in session.history.records if r.seconds.total > 0]
    typical = sum(launches) / len(launches) if launches else 0.0
    reserve = typical * (config.confirm.finalists + 1) * config.confirm.rounds
    return config.budget.wall - (time.monotonic() - session.started) - reserve


def has_time(session: Session) -> bool:
    """True while there is wall time beside what the confirmation will take."""
    left = wall_left(session)
    return left is None or left > 0


def queue_baseline_when_due(session: Session) -> None:
    """The baseline again every so many launches: it shows launch noise and drift."""
    if not session.history.baselines:
        session.opened.queue_baseline()  # whoever finds none measured measures one itself
        return
    every, since = session.loaded.config.search.baseline_every, session.history.since_baseline
    is_running = any(trial.user_attrs.get("baseline") for trial in session.opened.running())
    if every and since >= every and not is_running:
        session.opened.queue_baseline()


def run_asked(session: Session, asked: Asked, judge: Judge) -> TrialOutcome:
    """Run one asked trial; whatever ends the run marks the trial as interrupted first."""
    candidates = session.candidates
    if asked.is_baseline:
        args, broken = candidates.baseline, list[str]()
    else:
        args, broken = candidates.args_of(asked.params), candidates.broken_rules(asked.params)
    plan = TrialPlan(
        number=asked.number,
        params=asked.params,
        args=args,
        folder=session.opened.results.trial_folder(asked.number),
        is_baseline=asked.is_baseline,
        predicted=asked.predicted,
        broken_rules=tuple(broken),
    )
    try:
        return run_trial(session.bench, plan, session.history, judge)
    except TunerError as error:
        with session.lock:
            reason = [] if isinstance(error, Interrupted) else [error.message]
            session.opened.interrupt(asked, *reason)
        raise


def keep(session: Session, outcome: TrialOutcome) -> None:
    """Store a finished trial and tell everybody."""
    record = outcome.record
    note = session.opened.finish(record, outcome.blocks)
    session.history.take(outcome.record, outcome.measurement)
    session.bench.observer(as_finished(record))
    if note:
        session.bench.observer(Notice("warning", note))


def settle(session: Session) -> None:
    """What a new launch of the baseline says of the host, and of the trials before it.

    Raises:
        HostError: it varies or drifts beyond what can be measured on.
    """
    history, observer = session.history, session.bench.observer
    trouble = unfit_host(history, len(history.baselines) - session.earlier_baselines)
    if trouble and not session.loaded.config.search.keep_going:
        raise HostError(trouble.why, trouble.hint)
    if trouble:
        observer(Notice("warning", trouble.why))
    changed = settle_trials(session)
    if changed and history.sentinels().is_drifting:
        observer(Notice("warning", *drift_words(history, changed)))


def settle_trials(session: Session) -> int:
    """Take the machine's drift out of every trial's ratio and store it; how many changed."""
    changed = session.history.settle()
    for record in changed:
        session.opened.amend(
            record.number, {"vs_baseline": record.vs_baseline, "drift": record.drift}
        )
    return len(changed)


def require_baseline(session: Session, record: TrialRecord) -> None:
    """Without a baseline nothing can be compared; raises EngineError."""
    if record.state == "baseline" or session.history.baselines:
        return
    raise EngineError(
        f"the baseline must run before anything can be compared, got {record.failure}: "
        f"{record.reason}",
        " ".join([record.hint or _READ.format(record.log_path), *hang_hints(record)]),
    )


def hang_hints(
    record: TrialRecord, look: Callable[[], list[str]] = lambda: peer_hints(read_topology())
) -> list[str]:
    """What on this machine makes GPUs wait for each other forever, where a launch hung."""
    if record.failure not in (FailureKind.NOT_READY.label, FailureKind.STALLED.label):
        return []
    return [f"{hint[0].upper()}{hint[1:]}." for hint in look()]


# ---- the end ---------------------------------------------------------------------------------
def confirm_search(session: Session, stop: Stop) -> RecommendationRecord:
    """Confirm the search's best servers against the baseline on held-out prompts."""
    settle_trials(session)  # another worker may have measured the newest baseline
    finalists = finalists_of(session)
    looked_at = look_closer(session, finalists, "finalists", lambda: has_time(session))
    campaign = campaign_for(session, looked_at)
    found = confirm(campaign, session.loaded.config.fidelity, why_nothing(session, stop))
    return found.model_copy(update={"reasons": [*found.reasons, *further(session, found)]})


def finalists_of(session: Session) -> list[TrialRecord]:
    """The search's best servers, as it and `tuner confirm` choose them."""
    count = session.loaded.config.confirm.finalists
    return select_finalists(session.history, count, opinion_of(session).expected)


def campaign_for(session: Session, finalists: Sequence[TrialRecord]) -> Campaign:
    """The confirmation of these servers, the baseline first."""
    return plan_campaign(
        session.bench,
        session.opened,
        session.loaded.config.confirm,
        session.history,
        session.candidates,
        finalists,
        opinion_of(session),
    )


def keep_verdict(session: Session, recommendation: RecommendationRecord) -> RecommendationRecord:
    """Store the verdict; "keep the baseline" says whether the baseline may be kept at all."""
    if recommendation.verdict == "keep_baseline" and not baseline_is_feasible(session):
        recommendation = recommendation.model_copy(update={"constraints_met": False})
    session.opened.keep_recommendation(recommendation)
    return recommendation


def finish(session: Session, recommendation: RecommendationRecord, why: str) -> RunResult:
    """Emit the end of the run; raises NoFeasibleServer when not even the baseline may be kept."""
    history = session.history
    wall = time.monotonic() - session.started
    session.bench.observer(RunFinished(why, history.launches, wall))
    if not recommendation.constraints_met:
        raise NoFeasibleServer(
            "no server satisfies the outcome constraints, the baseline included",
            "Relax objective.constraints, or lower the load.",
        )
    return RunResult(
        study=session.opened.name,
        records=tuple(history.records),
        recommendation=recommendation,
        why=why,
        launches=history.launches,
        wall_s=wall,
    )


def baseline_is_feasible(session: Session) -> bool:
    """True when the baseline satisfies the outcome constraints itself."""
    newest = session.history.baselines[-1:]
    return all(value <= 0 for record in newest for value in record.constraints.values())
