"""Owns what signals do to a run: the first one raises, none ever skips a cleanup.

Signals are delivered to the main thread only; in any other thread the context managers here do
nothing.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType

from tuner.errors import Interrupted

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalReceived(KeyboardInterrupt, Interrupted):
    """What the first signal raises: an `Interrupted` that event loops do not swallow.

    asyncio logs and drops an ordinary exception raised inside one of its callbacks, but always
    lets a KeyboardInterrupt through; this one is both.
    """

    def __init__(self, number: int) -> None:
        name = signal.Signals(number).name
        Interrupted.__init__(self, f"interrupted by {name}.", "Run the same command to resume.")
        self.number = number


@dataclass(slots=True)
class Interrupts:
    """The signals received so far, in order."""

    received: list[int] = field(default_factory=list)


@contextlib.contextmanager
def raise_on_signals() -> Iterator[Interrupts]:
    """The first SIGINT, SIGTERM or SIGHUP raises `Interrupted`; further ones are only noted.

    Raises:
        Interrupted: in the main thread, once, wherever it is (but see `deferred`).
    """
    seen = Interrupts()

    def on_signal(number: int, frame: FrameType | None) -> None:
        seen.received.append(number)
        if len(seen.received) == 1:
            raise SignalReceived(number)

    with _handlers(on_signal):
        yield seen


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Signals that arrive inside wait until the end of the block, whatever their handler."""
    waiting: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        waiting.append(number)

    try:
        with _handlers(on_signal):
            yield
    finally:
        for number in dict.fromkeys(waiting):
            signal.raise_signal(number)


@contextlib.contextmanager
def _handlers(handler: signal._HANDLER) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # An ignored signal (nohup) stays ignored; None is a handler Python cannot restore.
    before = {n: signal.getsignal(n) for n in STOPPING}
    before = {n: old for n, old in before.items() if old not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
