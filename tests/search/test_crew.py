"""Several threads search; the main thread alone hears events and signals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tuner.errors import EngineError, Interrupted
from tuner.events import Notice, Observer
from tuner.search.crew import Crew
from tuner.search.stopping import Stop


class Seats:
    """As many seats as asked for; counts cancellations."""

    def __init__(self, seats: int) -> None:
        self.seats = seats
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        self.cancelled.set()


def crew(seats: Any, work: Callable[[Observer, Callable[[], bool]], Stop]) -> Crew:
    return Crew(seats, work)


def test_every_seat_works_and_the_first_reason_to_stop_counts() -> None:
    barrier = threading.Barrier(3)
    heard: list[tuple[str, bool]] = []

    def work(observer: Observer, is_over: Callable[[], bool]) -> Stop:
        observer(Notice("info", str(barrier.wait(10))))
        return Stop("the budget is used up")

    def observe(event: Any) -> None:
        heard.append((event.message, threading.current_thread() is threading.main_thread()))

    seats = Seats(3)
    assert crew(seats, work).search(observe).why == "the budget is used up"
    assert sorted(heard) == [("0", True), ("1", True), ("2", True)]
    assert not seats.cancelled.is_set()


def test_when_one_ends_the_others_finish_their_trial_and_start_no_other() -> None:
    trials: list[int] = []

    def work(observer: Observer, is_over: Callable[[], bool]) -> Stop:
        if not trials:
            trials.append(1)
            return Stop("done")
        while not is_over():
            pass
        trials.append(2)
        return Stop("later")

    found = crew(Seats(2), work).search(lambda event: None)
    assert found.why in ("done", "later")
    assert trials[0] == 1


def test_a_failure_of_one_cancels_the_others() -> None:
    seats = Seats(2)
    first = threading.Event()

    def work(observer: Observer, is_over: Callable[[], bool]) -> Stop:
        if not first.is_set():
            first.set()
            raise EngineError("the baseline must run")
        assert seats.cancelled.wait(10)
        raise Interrupted("interrupted by the user.")

    with pytest.raises(EngineError, match="the baseline must run"):
        crew(seats, work).search(lambda event: None)


def test_an_interruption_of_the_main_thread_waits_for_every_seat() -> None:
    seats = Seats(2)
    ended: list[int] = []

    def work(observer: Observer, is_over: Callable[[], bool]) -> Stop:
        observer(Notice("info", "measuring"))
        assert seats.cancelled.wait(10)
        ended.append(1)
        raise Interrupted("interrupted by the user.")

    def observe(event: Any) -> None:
        raise Interrupted("interrupted by SIGINT.")

    with pytest.raises(Interrupted, match="SIGINT"):
        crew(seats, work).search(observe)
    assert ended == [1, 1]
