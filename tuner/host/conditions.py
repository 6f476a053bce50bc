"""Owns the conditions a measurement was made under: foreign load and GPUs in one watch."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from tuner.host.gpu_sampler import GpuSampler, GpuSummary, sampler
from tuner.host.load import ForeignLoad, LoadWatch


@dataclass(frozen=True, slots=True)
class Conditions:
    """Both watches over one window; complete once the window has ended."""

    load_watch: LoadWatch
    gpu_sampler: GpuSampler | None

    @property
    def load(self) -> ForeignLoad | None:
        """What others took of the CPUs; None while the window is open."""
        return self.load_watch.load

    @property
    def gpus(self) -> list[GpuSummary]:
        """One summary per GPU; [] without NVML."""
        return self.gpu_sampler.summaries() if self.gpu_sampler is not None else []

    def gpus_between(self, begin_s: float, end_s: float) -> tuple[dict[str, Any], ...]:
        """One summary per GPU as plain values, over a part of the window; () without NVML."""
        if self.gpu_sampler is None:
            return ()
        return tuple(asdict(gpu) for gpu in self.gpu_sampler.summaries(begin_s, end_s))

    def warnings(self) -> list[str]:
        """What makes the measurement doubtful, in words."""
        on_gpus = self.gpu_sampler.warnings() if self.gpu_sampler is not None else []
        return self.load_watch.warnings() + on_gpus


@contextmanager
def watch_conditions(
    own_pids: Callable[[], Collection[int]],
    make_sampler: Callable[[Callable[[], Collection[int]]], GpuSampler | None] = sampler,
) -> Iterator[Conditions]:
    """Watch the machine while the block runs.

    Args:
        own_pids: the server's processes (ours is added); asked several times.
        make_sampler: makes the GPU sampler, or None where there are no GPUs.
    """
    conditions = Conditions(LoadWatch(own_pids), make_sampler(own_pids))
    with conditions.load_watch:
        if conditions.gpu_sampler is None:
            yield conditions
        else:
            with conditions.gpu_sampler:
                yield conditions


def load_now(
    own_pids: Callable[[], Collection[int]] = frozenset,
    seconds: float = 0.5,
    pause: Callable[[float], None] = time.sleep,
) -> ForeignLoad:
    """Foreign load over a short window from now: is the machine fit to be measured on?"""
    with LoadWatch(own_pids) as watch:
        pause(seconds)
    assert watch.load is not None
    return watch.load
