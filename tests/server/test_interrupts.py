"""The first signal raises, none skips a cleanup, none is lost in an event loop."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from tuner.errors import Interrupted
from tuner.server.interrupts import SignalReceived, deferred, raise_on_signals


def test_the_exception_is_both_and_has_a_hint() -> None:
    error = SignalReceived(signal.SIGTERM)
    assert isinstance(error, Interrupted)
    assert isinstance(error, KeyboardInterrupt)
    assert error.message == "interrupted by SIGTERM."
    assert error.hint == "Run the same command to resume."
    assert error.exit_code == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_raises_and_handlers_are_restored(number: signal.Signals) -> None:
    started_with = signal.signal(number, signal.default_int_handler)  # nohup ignores SIGHUP
    try:
        with pytest.raises(Interrupted, match=number.name), raise_on_signals():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, started_with)


def test_further_signals_are_only_noted() -> None:
    with raise_on_signals() as seen:
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert seen.received == [signal.SIGINT, signal.SIGINT, signal.SIGTERM]


def test_an_event_loop_lets_it_through_from_a_callback() -> None:
    async def wait() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
        await asyncio.sleep(10)

    with pytest.raises(Interrupted), raise_on_signals():
        asyncio.run(wait())


def test_deferred_signals_wait_for_the_end_of_the_block() -> None:
    steps = []

    def clean_up() -> None:
        with deferred():
            signal.raise_signal(signal.SIGINT)
            steps.append("cleaned up")
        steps.append("never reached")

    with pytest.raises(Interrupted), raise_on_signals():
        clean_up()
    assert steps == ["cleaned up"]


def test_deferred_works_for_any_handler_and_on_errors() -> None:
    received: list[int] = []

    def fail_during_cleanup() -> None:
        with deferred():
            signal.raise_signal(signal.SIGHUP)
            assert received == []
            raise KeyError("x")

    before = signal.signal(signal.SIGHUP, lambda number, frame: received.append(number))
    try:
        with pytest.raises(KeyError):
            fail_during_cleanup()
        assert received == [signal.SIGHUP]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raise_on_signals() as seen:
            signal.raise_signal(signal.SIGHUP)
        assert seen.received == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_change_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    handlers = []

    def work() -> None:
        with raise_on_signals(), deferred():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [before]
