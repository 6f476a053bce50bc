"""Owns the preparation of a run: a loaded study becomes a `Session` that can launch.

The first third of the design's data flow: build_space → get_engine → inspect_host →
load_prompts → open_study. Launches no server.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tuner.config.loader import LoadedStudy
from tuner.engines.catalog import get_engine
from tuner.events import Notice, Observer
from tuner.host.fingerprint import Subject, take
from tuner.measure.metrics import summarize
from tuner.measure.prompts import build_workload
from tuner.search.bench import Bench, ServerRunner
from tuner.search.candidates import Candidates, find_candidates, inspect_engine
from tuner.search.history import History
from tuner.search.identity import StudySetup
from tuner.search.local_runner import LocalRunner
from tuner.search.objective import build_objective
from tuner.search.sampling import Ground
from tuner.search.study import OpenStudy, open_study
from tuner.server.strays import find_strays, stop_strays
from tuner.space import build_space
from tuner.store.database import open_store
from tuner.store.place import StudyPlace, note_place, place_of


@dataclass(slots=True)
class Session:
    """One run of a study: what it launches on, what it may launch, what it knows.

    `started` is when this run began, on the monotonic clock: the wall budget counts from it.
    """

    loaded: LoadedStudy
    bench: Bench
    candidates: Candidates
    opened: OpenStudy
    history: History
    started: float = field(default_factory=time.monotonic)

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
        )


@contextlib.contextmanager
def open_session(loaded: LoadedStudy, observer: Observer, *, new: bool) -> Iterator[Session]:
    """Prepare everything and hold the run lock for the life of the block.

    Raises:
        TunerError: of the kind that says who is at fault; nothing was launched.
    """
    config = loaded.config
    engine = get_engine(config.engine)
    facts = inspect_engine(engine, config.engine)
    candidates = find_candidates(engine, build_space(loaded), facts)
    for note in candidates.notes:
        observer(Notice("info", note))
    workload = build_workload(config.workload, config.search.seed)
    fingerprint = take(subject_of(loaded, facts.version))
    setup = StudySetup(loaded, candidates.space, workload.digest, fingerprint)
    place = place_of(config.name, config.storage)
    with place.results.lock(), open_store(place.url, create=True) as store:
        clear_strays(place, observer)
        note_place(place)
        opened = open_study(setup, store, place.results, new=new)
        bench = Bench(
            study=opened.name,
            engine=engine,
            facts=facts,
            workload=workload,
            objective=build_objective(config.objective, workload.loads),
            launch_timeout_s=config.engine.launch_timeout,
            observer=observer,
            runner=make_runner(loaded),
            fingerprint=fingerprint.digest,
        )
        yield Session(loaded, bench, candidates, opened, recall(bench, opened))


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


def make_runner(loaded: LoadedStudy) -> ServerRunner:
    """Who runs the launches of a study; the fake server's figures are never real."""
    return LocalRunner(is_simulated=loaded.config.engine.kind == "fake")


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
    if history.baselines:
        blocks = opened.trial_blocks(history.baselines[0].number)
        history.baseline = summarize(blocks, limits=bench.workload.limits)
    return history
