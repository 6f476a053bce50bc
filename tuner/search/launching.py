"""Owns launching again where the failure was the host's, and giving up where it stays."""

from __future__ import annotations

import time

from tuner.errors import FailureKind, HostError, TrialFailure
from tuner.events import StageChanged
from tuner.search.bench import Bench, LaunchPlan, ServerRun, StopEarly

RETRY_PAUSE_S = 1.0


def run_launch(bench: Bench, plan: LaunchPlan, run: ServerRun, stop_early: StopEarly) -> None:
    """Measure a planned server into `run`, as often as its failure's kind allows.

    Raises:
        TrialFailure: the last attempt's.
        HostError: a server could not be stopped; nothing more may be launched here.
    """
    failures = 0
    while True:
        try:
            return bench.runner.run(bench, plan, run, stop_early)
        except TrialFailure as failure:
            if failure.kind is FailureKind.NOT_STOPPED:
                raise HostError(failure.reason, failure.hint) from failure
            failures += 1
            if failures > failure.kind.retries:
                raise
            note = f"again after {failure.kind.label}: {failure.reason}"
        bench.observer(StageChanged(plan.number, "preparing", note))
        run.start_again(note)
        time.sleep(RETRY_PAUSE_S)
