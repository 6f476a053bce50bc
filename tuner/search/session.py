"""Owns the preparation of a run: a loaded study becomes a `Session` that can launch.

The first third of the design's data flow: build_space → get_engine → inspect_host →
load_prompts → open_study. Launches no server.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tuner.config.engine import ReplayConfig
from tuner.config.loader import LoadedStudy
from tuner.config.study import LocalExecution, StudyConfig
from tuner.engines.catalog import get_engine
from tuner.events import Notice, Observer
from tuner.host.environment import handed_down
from tuner.host.fingerprint import Subject, take
from tuner.measure.landscape import read_landscape
from tuner.measure.metrics import summarize
from tuner.measure.prompts import build_workload
from tuner.measure.records import Measurement
from tuner.search.bench import Bench, ServerRunner
from tuner.search.candidates import Candidates, find_candidates, inspect_engine, no_server
from tuner.search.draft_context import require_draft_context
from tuner.search.faithful import few_prompts
from tuner.search.history import History
from tuner.search.identity import StudySetup
from tuner.search.learning import Learned, learn
from tuner.search.local_runner import LocalRunner
from tuner.search.objective import build_objective
from tuner.search.placement import (
    devices_per_server,
    host_devices,
    needs_seats,
    own_cpus,
    plan_seats,
)
from tuner.search.ray_cluster import Cluster, connected
from tuner.search.ray_runner import Expected, RayRunner, node_fingerprint
from tuner.search.replay_runner import ReplayRunner
from tuner.search.sampling import Ground, Suggester
from tuner.search.seats import SeatRunner
from tuner.search.study import OpenStudy, open_study
from tuner.search.workers import Devices, present
from tuner.server.strays import find_strays, stop_strays
from tuner.space import build_space
from tuner.store.database import Store, open_store
from tuner.store.faults import persist
from tuner.store.place import StudyPlace, note_place, place_of
from tuner.store.urls import parse_url


@dataclass(slots=True)
class Session:
    """One run of a study: what it launches on, what it may launch, what it knows.

    Args:
        started: when this run began, on the monotonic clock: the wall budget counts from it.
        lock: held by the thread that reads or changes what the study knows.
        earlier_baselines: launches of the baseline that were stored before this run.
        learned: what earlier studies told, under `search.learn_from`.
        suggester: the sampler, once it was needed: the confirmation asks for its opinion.
    """

    loaded: LoadedStudy
    bench: Bench
    candidates: Candidates
    opened: OpenStudy
    history: History
    started: float = field(default_factory=time.monotonic)
    lock: threading.RLock = field(default_factory=threading.RLock)
    earlier_baselines: int = 0
    learned: Learned = field(default_factory=Learned)
    suggester: Suggester | None = None

    def refresh(self) -> None:
        """Take note of what other workers have finished meanwhile."""
        if self.opened.store.is_shared:
            self.history.records = self.opened.records()
            self.history.baseline = self.history.baseline or first_baseline(
                self.bench, self.opened, self.history
            )

    @property
    def ground(self) -> Ground:
        """What the samplers choose from."""
        config = self.loaded.config
        return Ground(
            self.candidates.space,
            self.candidates.survey,
            config.search,
            self.bench.objective.maximize,
            config.budget.launches,
            self.bench.engine,
            self.bench.objective.metric,
            self.bench.objective.load.label,
            self.learned.launches,
        )


@contextlib.contextmanager
def open_session(loaded: LoadedStudy, observer: Observer, *, new: bool) -> Iterator[Session]:
    """Prepare everything and hold the run lock for the life of the block.

    Raises:
        TunerError: of the kind that says who is at fault; nothing was launched.
    """
    with handed_down(loaded.secrets), _opened(loaded, observer, new) as session:
        yield session


@contextlib.contextmanager
def _opened(loaded: LoadedStudy, observer: Observer, new: bool) -> Iterator[Session]:
    config = loaded.config
    engine = get_engine(config.engine)
    facts = inspect_engine(engine, config.engine)
    candidates = find_candidates(engine, build_space(loaded), facts)
    for note in candidates.notes:
        observer(Notice("info", note))
    for note in few_prompts(config.fidelity, config.workload, config.confirm.rounds):
        observer(Notice("warning", note))
    workload = build_workload(config.workload, config.search.seed)
    for note in require_draft_context(loaded, workload):
        observer(Notice("warning", note))
    subject, place = subject_of(loaded, facts.version), place_of(config.name, config.storage)
    refusal = no_server(candidates)
    if refusal is not None and (new or place.results.read_identity() is None):
        raise refusal  # nothing is created; a study that exists says first what has changed in it
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(cluster_of(config))
        fingerprint = take(subject) if cluster is None else node_fingerprint(cluster, subject)
        setup = StudySetup(loaded, candidates.space, workload.digest, fingerprint)
        store = stack.enter_context(hold_place(place))
        clear_strays(place, observer)
        note_place(place)
        opened = open_study(setup, store, place.results, new=new)
        if refusal is not None:
            raise refusal
        if store.is_shared:
            stack.enter_context(present(store, opened.name))
        bench = Bench(
            study=opened.name,
            engine=engine,
            facts=facts,
            workload=workload,
            objective=build_objective(config.objective, workload.loads),
            launch_timeout_s=config.engine.launch_timeout,
            observer=observer,
            runner=(
                stack.enter_context(make_runner(loaded, opened))
                if cluster is None
                else RayRunner(cluster, config.engine, Expected(subject, fingerprint))
            ),
            fingerprint=fingerprint.digest,
        )
        history = recall(bench, opened)
        yield Session(
            loaded,
            bench,
            candidates,
            opened,
            history,
            earlier_baselines=len(history.baselines),
            learned=_learned(setup, candidates, opened, observer),
        )


def _learned(
    setup: StudySetup, candidates: Candidates, opened: OpenStudy, observer: Observer
) -> Learned:
    """What earlier studies tell, said aloud and kept with the study."""
    if not setup.loaded.config.search.learn_from:
        return Learned()
    found = learn(setup, candidates.digests, str(opened.identity.get("uid", "")))
    for note in found.notes:
        observer(Notice("info", note))
    notes = list(found.notes)
    persist(lambda: opened.study.set_user_attr("learned", notes), opened.name)
    return found


def subject_of(loaded: LoadedStudy, version: str) -> Subject:
    """What is fingerprinted beside the machine."""
    engine = loaded.config.engine
    searched = [each.env for each in loaded.parameters.values() if each.env]
    return Subject(
        engine=f"{engine.kind} {version or 'of unknown version'}",
        model=engine.model,
        draft_model=engine.draft_model,
        study_env=(*engine.env, *searched),
    )


@contextlib.contextmanager
def hold_place(place: StudyPlace) -> Iterator[Store]:
    """The run lock and the database; workers of a shared database hold the lock together."""
    is_shared = parse_url(place.url).path is None
    with place.results.lock(shared=is_shared), open_store(place.url, create=True) as store:
        yield store


@contextlib.contextmanager
def cluster_of(config: StudyConfig) -> Iterator[Cluster | None]:
    """The Ray cluster that the study's servers run on; None: this machine."""
    if isinstance(config.execution, LocalExecution) or config.engine.kind == "replay":
        yield None
        return
    with connected(config.execution) as cluster:
        yield cluster


@contextlib.contextmanager
def make_runner(loaded: LoadedStudy, opened: OpenStudy) -> Iterator[ServerRunner]:
    """Who runs the launches on this machine, with the devices it may use.

    Raises:
        UsageError: `execution:` asks for what this machine does not have.
        HostError: other workers hold the devices.
    """
    execution, engine = loaded.config.execution, loaded.config.engine
    if isinstance(engine, ReplayConfig):
        yield ReplayRunner(read_landscape(Path(engine.landscape)), loaded.config.search.seed)
        return
    assert isinstance(execution, LocalExecution)
    devices = host_devices(execution, os.environ)
    is_leased = opened.store.is_shared and bool(devices)
    if not (needs_seats(execution) or is_leased):
        yield LocalRunner(is_simulated=engine.kind == "fake")
        return
    with contextlib.ExitStack() as stack:
        if is_leased:
            needed = devices_per_server(loaded.config, len(devices)) * execution.parallel
            pool = Devices(opened.store, opened.name, devices)
            devices = stack.enter_context(pool.lease(needed)).names
        seats = plan_seats(loaded.config, devices, own_cpus())
        folder = opened.results.base
        yield stack.enter_context(SeatRunner(loaded.config.engine, seats, folder))


def clear_strays(place: StudyPlace, observer: Observer) -> None:
    """Stop servers that a dead tuner of this study left behind; nothing else ever is.

    Raises:
        HostError: one could not be stopped.
    """
    strays = find_strays([place.results.root])
    stop_strays(strays)
    for stray in strays:
        observer(Notice("warning", f"stopped what a tuner that died left running: {stray}"))


def recall(bench: Bench, opened: OpenStudy) -> History:
    """What the stored study knows, the first baseline's measurement included."""
    history = History(bench.objective)
    for record in opened.records():
        history.add(record)
    history.baseline = first_baseline(bench, opened, history)
    return history


def first_baseline(bench: Bench, opened: OpenStudy, history: History) -> Measurement | None:
    """The first baseline's measurement, from its raw blocks."""
    if not history.baselines:
        return None
    blocks = opened.trial_blocks(history.baselines[0].number)
    return summarize(blocks, limits=bench.workload.limits)
