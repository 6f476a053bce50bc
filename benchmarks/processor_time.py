"""The processor time of a process with all it started, over a stretch of its life.

Sampled by a thread while the process runs, so that starting up, importing and summarising do not
count: what is wanted is the time between the first request and the last answer.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import numpy as np
import psutil

_EVERY_S = 0.25


def tree_s(pid: int) -> dict[int, float]:
    """Seconds that a process and each of its descendants have run so far, to the nanosecond."""
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return {}
    return {one: own_s(one) for one in [pid, *(child.pid for child in children)]}


def own_s(pid: int) -> float:
    """Seconds that the threads of one process have run so far; 0 when it is gone."""
    seconds = 0.0
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
    return seconds


class Sampler:
    """Samples a process until it is stopped; `core` is where the sampling itself runs."""

    def __init__(self, pid: int, core: int) -> None:
        self._pid = pid
        self._core = core
        self._seen: dict[int, float] = {}
        self._samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the sampling; idempotent."""
        self._stop.set()
        self._thread.join()

    def between_s(self, first_s: float, last_s: float) -> float:
        """Processor seconds between two instants of the monotonic clock."""
        times, seconds = zip(*self._samples, strict=True)
        start, end = np.interp([first_s, last_s], times, seconds)
        return float(end - start)

    def _run(self) -> None:
        os.sched_setaffinity(0, {self._core})
        while True:
            now = time.perf_counter()
            for pid, seconds in tree_s(self._pid).items():
                self._seen[pid] = max(seconds, self._seen.get(pid, 0.0))
            self._samples.append((now, sum(self._seen.values())))
            if self._stop.wait(_EVERY_S):
                return
