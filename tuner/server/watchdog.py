"""Owns whether a ready server is still whole while it is measured.

Health pages are not asked: they disturb the measurement and say 200 over a dead worker. What is
read is what the kernel knows of the server's processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tuner.server import procfs
from tuner.server.process import ServerProcess
from tuner.server.procfs import ProcessStat
from tuner.server.readiness import said_last_words

_SAMPLE_S = 1.0
_IDLE_S = 3.0
_IDLE_CPU = 0.02  # of one core, over everything the server runs
_STOPPED_S = 5.0


class Watchdog:
    """Watches a server from the moment it is made, which is right after it became ready.

    A lost worker alone is no failure (compilers and helpers come and go); a lost worker of a
    server that does nothing any more while requests wait is.
    """

    def __init__(
        self,
        process: ServerProcess,
        clock: Callable[[], float] = time.monotonic,
        last_words: Sequence[str] = (),
    ) -> None:
        self._process = process
        self._last_words = last_words
        self._is_doomed = False
        self._clock = clock
        self._workers = [stat for stat in process.members() if stat.id.pid != process.pid]
        self._lost: ProcessStat | None = None
        self._cpu_s = 0.0
        self._sampled = self._idle_since = self._running_since = clock()
        self._log_stamp: tuple[int, int] | None = None
        self.peak_rss_bytes = 0
        self._sample(self._sampled)

    def alive(self) -> str | None:
        """None while the server works; otherwise in words why it does not.

        Cheap enough to be called ten times a second. Meaningful while requests are in flight.
        """
        if self._process.poll() is not None:
            return f"the server {self._process.exit_reason()}"
        now = self._clock()
        if now - self._sampled >= _SAMPLE_S:
            self._sample(now)
        if self._is_doomed:
            return "the server has crashed and is about to end itself"
        if now - self._running_since >= _STOPPED_S:
            return f"the server process {self._process.pid} is stopped (SIGSTOP or a debugger)"
        if self._lost is not None and now - self._idle_since >= _IDLE_S:
            return f"worker process {self._lost.id.pid} ({self._lost.name}) of the server is gone"
        return None

    def _sample(self, now: float) -> None:
        main = procfs.read_stat(self._process.pid)
        workers = [procfs.read_stat(stat.id.pid) for stat in self._workers]
        present = {w.id: w for w in workers if w is not None and w.is_alive}
        gone = [stat for stat in self._workers if stat.id not in present]
        self._lost = self._lost or (gone[0] if gone else None)
        stats = [*present.values(), *([main] if main is not None else [])]
        cpu_s = sum(stat.cpu_s for stat in stats)
        if abs(cpu_s - self._cpu_s) > _IDLE_CPU * max(now - self._sampled, _SAMPLE_S):
            self._idle_since = now
        if main is None or main.state not in "Tt":
            self._running_since = now
        self.peak_rss_bytes = max(self.peak_rss_bytes, sum(stat.rss_bytes for stat in stats))
        stamp = self._read_log_stamp()
        if stamp != self._log_stamp:
            self._log_stamp = stamp
            self._is_doomed = self._is_doomed or said_last_words(self._process, self._last_words)
        self._cpu_s, self._sampled = cpu_s, now

    def _read_log_stamp(self) -> tuple[int, int] | None:
        try:
            info = self._process.log_path.stat()
        except OSError:
            return None
        return info.st_size, info.st_mtime_ns
