"""Owns the preparation of a run: a loaded study becomes a `Session` that can launch.

The first half of the design's data flow: build_space → get_engine → inspect_host →
load_prompts → open_study. Launches no server.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.config.loader import LoadedStudy
from tuner.engines.catalog import get_engine
from tuner.events import Notice, Observer
from tuner.host.fingerprint import take
from tuner.measure.prompts import build_workload
from tuner.measure.records import Block
from tuner.search.bench import Bench
from tuner.search.candidates import Candidates, find_candidates, inspect_engine
from tuner.search.history import History
from tuner.search.local_runner import LocalRunner
from tuner.search.objective import build_objective
from tuner.search.study import OpenStudy, open_study
from tuner.server.strays import stop_strays
from tuner.space import SearchSpace, build_space
from tuner.store.record import ConfirmationLaunch, TrialRecord


@dataclass(slots=True)
class Session:
    """One run of a study: what it launches on, what it may launch, what it knows."""

    loaded: LoadedStudy
    space: SearchSpace
    bench: Bench
    candidates: Candidates
    opened: OpenStudy
    history: History
    started: float = field(default_factory=time.monotonic)
