"""A launch measured in another process is the same as one measured here."""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.config.engine import FakeConfig
from tuner.errors import FailureKind, HostError, Interrupted, TrialFailure
from tuner.events import StageChanged
from tuner.measure.records import LoadPoint
from tuner.search.bench import Bench, LaunchPlan, ServerRun
from tuner.search.remote import Job, WireError, drive, portable, serve, take_over
from tuner.server.interrupts import SignalReceived


class Pipe:
    """Two ends in one process; what passes is pickled, as it will be."""

    def __init__(self) -> None:
        self.ends = (queue.SimpleQueue[bytes](), queue.SimpleQueue[bytes]())

    def end(self, number: int) -> Any:
        out, back = self.ends[number], self.ends[1 - number]

        class End:
            def send(self, message: Any) -> None:
                out.put(pickle.dumps(message))

            def receive(self) -> Any:
                data = back.get(timeout=10)
                if not data:
                    raise EOFError
                return pickle.loads(data)

        return End()


@pytest.fixture
def elsewhere(bench: Any, tmp_path: Path) -> Callable[..., ServerRun]:
    """Run a scripted launch in another thread, over a pipe."""

    def run(step: Any, stop_early: Any, **more: Any) -> ServerRun:
        here: Bench = replace(bench({"x": step}), **more)
        plan = LaunchPlan(
            3, ServerArgs({"steps": 2}), here.workload.blocks, here.loads, tmp_path, "x"
        )
        pipe, mine = Pipe(), ServerRun(warnings=["again after x"], spent={"launch": 2.0})
        job = Job(portable(here), FakeConfig(kind="fake"), plan, mine)

        def work() -> None:
            channel = pipe.end(1)
            here.observer(StageChanged(3, "launching"))
            serve(channel, channel.receive(), here.runner)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            drive(pipe.end(0), job, here, mine, stop_early)
        finally:
            thread.join()
        return mine

    return run


def never(run: ServerRun, load: LoadPoint) -> bool:
    return False


def test_everything_measured_there_is_here(elsewhere: Any) -> None:
    events: list[Any] = []
    step = {"seconds": [1.0, 2.0], "effective": {"flag": 1}}
    run = elsewhere(step, never, observer=events.append)
    assert [len(block.records) for block in run.blocks] == [2, 2, 2, 2]
    assert run.blocks[1].records[0].end_s == 2.0
    assert run.effective == {"flag": 1}
    assert (run.warnings, run.spent) == (["again after x"], {"launch": 2.0})
    assert events == [StageChanged(3, "launching")]


def test_the_controller_decides_after_each_block(elsewhere: Any) -> None:
    seen: list[int] = []

    def stop(run: ServerRun, load: LoadPoint) -> bool:
        seen.append(len(run.blocks))
        return len(run.blocks) == 2

    run = elsewhere({"seconds": [1.0]}, stop)
    assert seen == [1, 2]
    assert len(run.blocks) == 2


class Twin(Exception):
    pass


def test_what_ends_the_trial_here_ends_the_launch_there_first(elsewhere: Any) -> None:
    def stop(run: ServerRun, load: LoadPoint) -> bool:
        raise Twin

    with pytest.raises(Twin):
        elsewhere({"seconds": [1.0]}, stop)


def test_a_failure_there_is_the_same_failure_here(elsewhere: Any) -> None:
    there = TrialFailure(FailureKind.OUT_OF_MEMORY, "no room", hint="Less.", is_draft_fault=True)
    with pytest.raises(TrialFailure) as caught:
        elsewhere(there, never)
    here = caught.value
    assert (here.kind, here.reason, here.hint) == (there.kind, "no room", "Less.")
    assert here.is_draft_fault


@pytest.mark.parametrize(
    ("error", "made"),
    [
        (HostError("full", "Free it."), HostError),
        (SignalReceived(15), Interrupted),
    ],
)
def test_expected_errors_keep_their_kind(error: Any, made: type) -> None:
    restored = WireError.of(error).restored()
    assert type(restored) is made
    assert (restored.message, restored.hint) == (error.message, error.hint)


def test_the_clock_of_a_run_is_its_own() -> None:
    mine, other = ServerRun(started=5.0), ServerRun(started=7.0, warnings=["w"])
    take_over(mine, other)
    assert (mine.started, mine.warnings) == (5.0, ["w"])
