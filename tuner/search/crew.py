"""Owns several trials at once: a thread per seat asks, runs and keeps, the main thread watches.

Signals reach the main thread alone, and observers are called there: the threads hand their
events over, and end when the main thread is interrupted or one of them fails.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tuner.errors import Interrupted
from tuner.events import Event, Observer
from tuner.search.bench import CrowdRunner
from tuner.search.stopping import Stop


@dataclass(frozen=True, slots=True)
class _Left:
    """A thread has ended: with a reason to stop the search, or with an error."""

    stop: Stop | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class Crew:
    """The threads of one search.

    Args:
        runner: its seats; one thread each.
        work: what a thread does until it returns why the search ends. It gets the observer
            to use, and whether the search has ended meanwhile.
    """

    runner: CrowdRunner
    work: Callable[[Observer, Callable[[], bool]], Stop | None]
    _said: queue.SimpleQueue[Event | _Left] = field(default_factory=queue.SimpleQueue)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def search(self, observer: Observer) -> Stop:
        """Run the threads to the end of the search; every launch has ended afterwards.

        Raises:
            Interrupted: the user stopped it.
            TunerError: what the first thread failed with.
        """
        count = self.runner.seats
        threads = [threading.Thread(target=self._thread, name=f"seat-{i}") for i in range(count)]
        left: list[_Left] = []
        try:
            for thread in threads:
                thread.start()
            self._watch(observer, left, len(threads))
        except BaseException:
            self._abandon()
            self._watch(observer, left, len(threads))
            raise
        finally:
            for thread in threads:
                thread.join()
        return _verdict(left)

    def _thread(self) -> None:
        try:
            left = _Left(stop=self.work(self._say, self._is_over.is_set))
        except BaseException as error:  # noqa: BLE001 - raised again on the main thread
            self._abandon()
            left = _Left(error=error)
        self._is_over.set()
        self._said.put(left)

    def _say(self, event: Event) -> None:
        self._said.put(event)

    def _abandon(self) -> None:
        self._is_over.set()
        self.runner.cancel()

    def _watch(self, observer: Observer, left: list[_Left], threads: int) -> None:
        """Pass events on until every thread has left."""
        while len(left) < threads:
            said = self._said.get()
            if isinstance(said, _Left):
                left.append(said)
            else:
                observer(said)


def _verdict(left: list[_Left]) -> Stop:
    errors = [each.error for each in left if each.error is not None]
    ours = [error for error in errors if not isinstance(error, Interrupted)]
    for error in (*ours, *errors):
        raise error
    stops = [each.stop for each in left if each.stop is not None]
    return stops[0] if stops else Stop("the search ended")
