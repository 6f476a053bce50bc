"""One watch over CPUs and GPUs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

import pytest

from tuner.host.conditions import load_now, watch_conditions
from tuner.host.gpu_sampler import GpuSampler
from tuner.host.gpus import GpuReading


class Throttled:
    """One GPU, always held back."""

    def __init__(self) -> None:
        self.was_read = threading.Event()

    def read(self) -> list[GpuReading]:
        self.was_read.set()
        return [GpuReading(0, 1000, 90, 100.0, 0, ("thermal slowdown (hardware)",), {})]


def test_without_gpus_only_the_cpus_are_watched() -> None:
    with watch_conditions(lambda: set(), lambda own: None) as conditions:
        assert conditions.load is None
        assert conditions.warnings() == []
    assert conditions.load is not None
    assert conditions.load.seconds > 0
    assert conditions.gpus == []


def test_with_gpus_both_are_watched_and_the_thread_ends() -> None:
    source = Throttled()

    def make(own: Callable[[], Collection[int]]) -> GpuSampler:
        return GpuSampler(source, own, interval_s=0.01)

    with watch_conditions(lambda: {1}, make) as conditions:
        assert source.was_read.wait(5)
    assert conditions.gpus[0].temperature_c_max == 90
    assert any("thermal slowdown" in warning for warning in conditions.warnings())
    assert not [t for t in threading.enumerate() if t.name == "gpu-sampler"]


def test_what_is_watched_ends_with_an_error_too() -> None:
    source = Throttled()
    with (
        pytest.raises(KeyError),
        watch_conditions(lambda: {1}, lambda own: GpuSampler(source, own, interval_s=0.01)),
    ):
        raise KeyError("x")
    assert not [t for t in threading.enumerate() if t.name == "gpu-sampler"]


def test_the_load_of_this_moment() -> None:
    paused = []
    load = load_now(seconds=0.25, pause=paused.append)
    assert paused == [0.25]
    assert load.cores >= 1
    assert load.foreign_cores >= 0
