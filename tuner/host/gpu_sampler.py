"""Owns sampling the GPUs while a server is measured, and what the samples say."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import TracebackType

from tuner.host.gpus import GpuReading, GpuSource, open_nvml

_THROTTLED_SHARE = 0.05
_CLOCK_SPREAD = 0.10


@dataclass(frozen=True, slots=True)
class GpuSummary:
    """One GPU over a window. `throttled` holds the share of samples by reason."""

    index: int
    samples: int
    sm_clock_mhz_mean: float
    sm_clock_mhz_min: int
    temperature_c_max: int
    power_w_mean: float
    memory_used_max: int
    throttled: dict[str, float]
    foreign_pids: tuple[int, ...]


class GpuSampler:
    """Reads the GPUs on a thread of its own while its context is open."""

    def __init__(
        self,
        source: GpuSource,
        own_pids: Callable[[], Collection[int]] = frozenset,
        interval_s: float = 1.0,
    ) -> None:
        self._source = source
        self._own_pids = own_pids
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)
        self._readings: list[tuple[float, GpuReading]] = []
        self._own: set[int] = set()

    def __enter__(self) -> GpuSampler:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        while True:
            self._own |= set(self._own_pids())
            taken_s = time.perf_counter()
            self._readings += [(taken_s, reading) for reading in self._source.read()]
            if self._stop.wait(self._interval_s):
                return

    def summaries(self, begin_s: float = -math.inf, end_s: float = math.inf) -> list[GpuSummary]:
        """One summary per GPU, of all samples so far or of a window (`time.perf_counter`).

        The sample before a window counts too: a short one may hold none.
        """
        first = begin_s - self._interval_s
        readings = [r for taken_s, r in list(self._readings) if first <= taken_s <= end_s]
        indices = sorted({reading.index for reading in readings})
        return [self._summary([r for r in readings if r.index == i]) for i in indices]

    def warnings(self) -> list[str]:
        """What makes a measurement doubtful: throttling, other processes, unequal clocks."""
        summaries = self.summaries()
        found = [
            f"GPU {gpu.index} was held back by its {reason} in {share:.0%} of the samples"
            for gpu in summaries
            for reason, share in gpu.throttled.items()
            if share >= _THROTTLED_SHARE
        ]
        found += [
            f"GPU {gpu.index} was used by other processes: {', '.join(map(str, gpu.foreign_pids))}"
            for gpu in summaries
            if gpu.foreign_pids
        ]
        clocks = [gpu.sm_clock_mhz_mean for gpu in summaries if gpu.sm_clock_mhz_mean]
        if clocks and min(clocks) < (1 - _CLOCK_SPREAD) * max(clocks):
            found.append(f"GPU clocks differ: {min(clocks):.0f} to {max(clocks):.0f} MHz")
        return found

    def _summary(self, readings: list[GpuReading]) -> GpuSummary:
        count = len(readings)
        reasons = sorted({reason for reading in readings for reason in reading.throttled})
        pids = {pid for reading in readings for pid in reading.processes}
        # In a container NVML may name pids of the host: then none of ours is among them.
        is_other_namespace = bool(self._own) and not pids & self._own
        foreign = set() if is_other_namespace else pids - self._own
        return GpuSummary(
            index=readings[0].index,
            samples=count,
            sm_clock_mhz_mean=sum(r.sm_clock_mhz for r in readings) / count,
            sm_clock_mhz_min=min(r.sm_clock_mhz for r in readings),
            temperature_c_max=max(r.temperature_c for r in readings),
            power_w_mean=sum(r.power_w for r in readings) / count,
            memory_used_max=max(r.memory_used for r in readings),
            throttled={x: sum(x in r.throttled for r in readings) / count for x in reasons},
            foreign_pids=tuple(sorted(foreign)),
        )


def sampler(
    own_pids: Callable[[], Collection[int]] = frozenset, source: GpuSource | None = None
) -> GpuSampler | None:
    """A sampler of these GPUs, or of all of this machine; None where there is no NVML."""
    found = source or open_nvml()
    return GpuSampler(found, own_pids) if found is not None else None
