"""Two servers side by side, for real: crowded baselines, a killed worker, an interruption."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil

from tuner.search.seats import crowding_note


def worker_of(process: Any, label: str, name: str) -> int:
    """The measuring process whose server runs a trial: it is in the marker's owner."""
    for child in psutil.Process(process.pid).children():
        if "tuner.search.seat_worker" in child.cmdline():
            for server in child.children(recursive=True):
                if server.environ().get("TUNER_SERVER", "").startswith(f"{name}:{label}:"):
                    return child.pid
    raise AssertionError("no measuring process has that server")


def test_every_seat_measures_the_baseline_and_each_server_once(real_study: Any) -> None:
    real_study.write(parallel=2, steps="[3, 4]")
    code, said = real_study.run()
    assert code == 0, said
    records = real_study.records()
    assert [r.state for r in records] == ["baseline", "baseline", "complete", "complete"]
    assert len({r.digest for r in records}) == 3
    assert real_study.orphans() == []
    confirmed = {trial for _, trial in real_study.launches()}
    assert len(confirmed) == 2
    real_study.write(parallel=1, steps="[3, 4]")
    code, said = real_study.run()
    assert code == 4
    assert "execution.parallel: stored 2, now absent" in said


def test_a_killed_measuring_process_costs_one_launch(real_study: Any) -> None:
    real_study.write(parallel=2)
    with real_study.start() as process:
        for line in process.stdout:
            if line == "BlockMeasured\n":
                os.kill(worker_of(process, "trial-0", real_study.name), signal.SIGKILL)
                break
        said = process.stdout.read()
    assert process.returncode == 0, said
    records = real_study.records()
    assert {r.state for r in records} == {"baseline", "complete"}
    notes = [warning for r in records for warning in r.warnings]
    assert any("again after interrupted: the process that measured it" in note for note in notes)
    assert real_study.orphans() == []


def test_an_interruption_ends_every_server_and_the_next_run_goes_on(real_study: Any) -> None:
    real_study.write(parallel=2)
    code, said = real_study.run("StageChanged:stage=measuring,number=1", "SIGINTx2")
    assert code == 130, said
    assert real_study.orphans() == []
    interrupted = [r.failure for r in real_study.records() if r.state == "failed"]
    assert set(interrupted) <= {"interrupted"}
    code, said = real_study.run()
    assert code == 0, said
    states = [r.state for r in real_study.records() if r.state != "failed"]
    assert sorted(set(states)) == ["baseline", "complete"]
    assert states.count("complete") == 1


def test_a_trial_with_fewer_neighbours_than_the_baseline_says_so() -> None:
    assert crowding_note([2, 2, 1], 2) == []
    assert crowding_note([], 2) == []
    (note,) = crowding_note([1, 1, 2], 2)
    assert note == "measured beside 0 other servers, the baseline beside 1"


def test_a_seat_sees_only_its_own_gpus_and_cpus(tmp_path: Path) -> None:
    from tuner.host.gpus import GpuReading
    from tuner.search.seat_worker import SeatGpus

    class Source:
        def read(self) -> list[GpuReading]:
            return [GpuReading(i, 1000, 40, 100.0, i << 30, (), {}) for i in range(4)]

    seen = SeatGpus(Source(), frozenset({"1", "3"})).read()
    assert [reading.index for reading in seen] == [1, 3]
