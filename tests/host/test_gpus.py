"""GPUs through a source of readings; the library itself is a fake with its real names."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tuner.host import gpus
from tuner.host.gpu_sampler import GpuSampler
from tuner.host.gpus import GpuReading, Nvml, await_memory_released, parse_gpu_query

MIB = 1 << 20


def reading(
    index: int = 0, *, clock: int = 1980, used: int = 100, throttled: tuple[str, ...] = (),
    pids: tuple[int, ...] = (),
) -> GpuReading:  # fmt: skip
    return GpuReading(index, clock, 60, 400.0, used * MIB, throttled, dict.fromkeys(pids, MIB))


class Script:
    """A source that plays readings, the last one for ever."""

    def __init__(self, *readings: list[GpuReading]) -> None:
        self.readings = list(readings)
        self.reads = 0
        self.played = threading.Event()

    def read(self) -> list[GpuReading]:
        self.reads += 1
        if self.reads >= len(self.readings):
            self.played.set()
        return self.readings[min(self.reads, len(self.readings)) - 1]


def sample(script: Script, own: Callable[[], set[int]] = set) -> GpuSampler:
    with GpuSampler(script, own, interval_s=0.001) as sampler:
        assert script.played.wait(5)
    return sampler


def test_a_summary_per_gpu() -> None:
    sampler = sample(Script([reading(0, clock=1900), reading(1)], [reading(0), reading(1)]))
    first, second = sampler.summaries()
    assert (first.index, second.index) == (0, 1)
    assert first.sm_clock_mhz_min == 1900
    assert second.sm_clock_mhz_mean == 1980
    assert first.power_w_mean == 400
    assert sampler.warnings() == []


def test_a_window_holds_its_samples_and_the_one_before() -> None:
    sampler = sample(Script([reading(clock=1000)], [reading(clock=2000)]))
    now = time.perf_counter()
    assert sampler.summaries(now + 1, now + 2) == []
    assert sampler.summaries(-math.inf, now - 60) == []
    (found,) = sampler.summaries(now - 60, now)
    assert (found.sm_clock_mhz_min, found.samples >= 2) == (1000, True)


def test_throttling_is_named_with_its_share() -> None:
    sampler = sample(Script([reading(throttled=("power cap",))]))
    assert sampler.warnings() == ["GPU 0 was held back by its power cap in 100% of the samples"]


def test_processes_of_others_are_named() -> None:
    sampler = sample(Script([reading(pids=(10, 77))]), lambda: {10})
    assert sampler.warnings() == ["GPU 0 was used by other processes: 77"]


def test_host_pids_seen_from_a_container_are_nobodys_fault() -> None:
    assert sample(Script([reading(pids=(4711,))]), lambda: {10}).warnings() == []


def test_unequal_clocks_are_named() -> None:
    sampler = sample(Script([reading(0, clock=1980), reading(1, clock=1200)]))
    assert sampler.warnings() == ["GPU clocks differ: 1200 to 1980 MHz"]


def test_memory_is_waited_for() -> None:
    script = Script([reading(used=90_000)], [reading(used=40_000)], [reading(used=200)])
    assert await_memory_released({0: 100 * MIB}, script, pause=lambda s: None) == []
    assert script.reads == 3


def test_memory_that_stays_taken_is_described() -> None:
    script = Script([reading(used=90_000, pids=(77,))])
    held = await_memory_released({0: 100 * MIB}, script, timeout_s=2, pause=lambda s: None)
    assert held == ["GPU 0: 90000 MiB used, 100 MiB before the launch, by processes [77]"]


def test_nvidia_smi_rows() -> None:
    text = (
        "0, NVIDIA H200, GPU-abc, 143771, 575.57.08\nbroken\n1, NVIDIA H200, GPU-d, 143771, 575\n"
    )
    found = parse_gpu_query(text)
    assert [(g.index, g.name, g.uuid) for g in found] == [
        (0, "NVIDIA H200", "GPU-abc"),
        (1, "NVIDIA H200", "GPU-d"),
    ]
    assert found[0].memory_bytes == 143771 * MIB
    assert found[0].driver == "575.57.08"


class FakeBindings(SimpleNamespace):
    """The part of nvidia-ml-py that is used."""

    class NVMLError(Exception):
        pass

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlSystemGetDriverVersion": b"575.57.08",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetUUID": b"GPU-abc",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=10 * MIB, used=3 * MIB),
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x1,
            "nvmlDeviceGetClockInfo": 1980,
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=9, usedGpuMemory=None)],
        }
        if name not in answers:
            raise AttributeError(name)
        return lambda *_: answers[name]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        raise self.NVMLError("not supported")


def test_the_library_is_read_with_what_it_does_not_support_left_out() -> None:
    nvml = Nvml(FakeBindings())
    assert nvml.gpus() == [gpus.Gpu(0, "NVIDIA H200", "GPU-abc", 10 * MIB, "575.57.08")]
    assert nvml.read() == [
        GpuReading(0, 1980, 61, 0.0, 3 * MIB, ("power cap",), {9: 0}),
    ]
