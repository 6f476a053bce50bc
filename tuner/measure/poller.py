"""Owns waiting for sockets, and the instants at which their bytes arrived.

The kernel stamps what it receives, so an arrival has its true time however late the client looks
at it. That lets a busy client gather: it sleeps a millisecond or two and reads what several
streams delivered in one turn, instead of being woken for each of them.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable

Stamp = tuple[int, int]
"""Seconds and nanoseconds of the kernel's wall clock."""

_MOST_GATHERED_S = 0.002
_GATHER_SHARE = 1 / 1000
_GATHER_WORTH = 2.0
_SLACK_S = 0.002
_unpack = struct.Struct("qq").unpack


class Poller:
    """Waits for events of registered sockets. Use it as long as one run lasts, then close it.

    Attributes:
        now: when the last wait ended.
        waited_s: seconds spent waiting, altogether.
        gather_s: how long a turn gathers before it looks; 0 unless that pays (`pace`).
    """

    __slots__ = (
        "_clock",
        "_events",
        "_gap_s",
        "_has_stamps",
        "_offset_s",
        "_paced_s",
        "epoll",
        "gather_s",
        "now",
        "waited_s",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.epoll = select.epoll()
        self.now = self._paced_s = clock()
        self.waited_s = 0.0
        self.gather_s = 0.0
        self._events = 0
        self._gap_s = 0.0
        self._offset_s = 0.0
        self._has_stamps = False

    def wait(self, wait_s: float, *, is_exact: bool = False) -> list[tuple[int, int]]:
        """Events by file descriptor, at most `wait_s` from now; none when nothing happened.

        The kernel counts in milliseconds; with `is_exact` the wait ends on the microsecond.
        """
        asked = self._clock()
        if self.gather_s:
            time.sleep(min(self.gather_s, wait_s))
            wait_s = max(0.0, wait_s - self.gather_s)
        if is_exact and wait_s:
            select.select((self.epoll,), (), (), wait_s)
            wait_s = 0.0
        ready = self.epoll.poll(wait_s)
        now = self._clock()
        self._gap_s = now - self.now
        self._offset_s = now - time.time()
        self.now = now
        self.waited_s += now - asked
        self._events += len(ready)
        return ready

    def arrived_s(self, stamp: bytes) -> float:
        """The instant of a kernel stamp on the client's clock.

        A stamp that cannot be (the wall clock was set meanwhile) gives the time of this turn. One
        after it can be: more may arrive while a turn is being worked through.
        """
        self._has_stamps = True
        seconds, nanoseconds = _unpack(stamp)
        at: float = seconds + nanoseconds * 1e-9 + self._offset_s
        if 0.0 <= self.now - at < self._gap_s + _SLACK_S:
            return at
        return at if self.now < at <= self._clock() + _SLACK_S else self.now

    def pace(self, request_s: float) -> None:
        """Decide how long to gather, from the events since the last call.

        At most 1/1000 of a typical request's time, so that a free slot is filled in time; not at
        all when fewer than two events would be gathered or the kernel gives no stamps.
        """
        seconds = max(self.now - self._paced_s, 1e-9)
        gather_s = min(_MOST_GATHERED_S, request_s * _GATHER_SHARE)
        pays = self._has_stamps and self._events / seconds * gather_s >= _GATHER_WORTH
        self.gather_s = gather_s if pays else 0.0
        self._paced_s, self._events = self.now, 0

    def close(self) -> None:
        """Give the kernel's object back; idempotent."""
        self.epoll.close()
