"""Foreign load is what others took between two readings."""

from __future__ import annotations

import os

import pytest

from tuner.host.load import CpuReading, LoadWatch, compare_readings, read_cpu

ME = os.getpid()


def reading(at: float, busy: float, steal: float = 0.0, **used: tuple[int, float]) -> CpuReading:
    processes = {(pid, 1.0): (name, cpu) for name, (pid, cpu) in used.items()}
    return CpuReading(at, busy, steal, processes, cores=4)


def test_own_processes_are_not_foreign() -> None:
    before = reading(0, 100, server=(10, 50.0), tuner=(ME, 5.0), other=(20, 7.0))
    after = reading(10, 145, server=(10, 80.0), tuner=(ME, 6.0), other=(20, 20.0))
    load = compare_readings(before, after, {10, ME})
    assert load.foreign_cores == 1.3
    assert load.busiest == (("other", 20, 1.3),)
    assert load.unseen_cores == pytest.approx((45 - 30 - 1 - 13) / 10)
    assert load.warnings() == ["another process was busy, cores used: other (20): 1.3"]


def test_a_quiet_machine_has_no_warnings() -> None:
    before = reading(0, 100, server=(10, 50.0), other=(20, 7.0))
    after = reading(10, 131, server=(10, 80.0), other=(20, 7.5))
    load = compare_readings(before, after, {10})
    assert load.foreign_cores == 0.05
    assert load.warnings() == []


def test_a_process_that_came_in_between_counts_from_its_start() -> None:
    load = compare_readings(reading(0, 0), reading(10, 20, new=(30, 20.0)), set())
    assert load.busiest == (("new", 30, 2.0),)


def test_a_reused_pid_is_another_process() -> None:
    before = CpuReading(0, 0, 0, {(20, 1.0): ("old", 500.0)}, 4)
    after = CpuReading(10, 10, 0, {(20, 9.0): ("new", 10.0)}, 4)
    assert compare_readings(before, after, set()).busiest == (("new", 20, 1.0),)


def test_steal_and_unseen_load_are_named() -> None:
    load = compare_readings(reading(0, 0), reading(10, 20, steal=4.0), set())
    assert load.steal_share == 0.1
    assert load.warnings() == [
        "2.0 cores were busy with processes not seen here",
        "the hypervisor took 10% of the CPU time (steal)",
    ]


def test_the_watch_reads_at_both_ends() -> None:
    readings = iter([reading(0, 0, other=(20, 0.0)), reading(2, 4, other=(20, 4.0))])
    with LoadWatch(lambda: {99}, lambda: next(readings)) as watch:
        assert watch.warnings() == []
    assert watch.load is not None
    assert watch.load.foreign_cores == 2.0
    assert len(watch.warnings()) == 1


def test_the_real_counters_hold_ourselves() -> None:
    found = read_cpu()
    assert found.busy_s > 0
    assert any(pid == ME for pid, _ in found.processes)
    assert found.cores >= 1
