"""Bytes have the time at which they arrived, not the time at which they were looked at."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from tuner.measure.connection import Address, Connection
from tuner.measure.poller import Poller


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def poller() -> Iterator[Poller]:
    made = Poller(time.perf_counter)
    yield made
    made.close()


@pytest.fixture
def pair(poller: Poller) -> Iterator[tuple[Connection, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection(Address(*listener.getsockname()), poller.epoll)
        peer, _ = listener.accept()
    with peer:
        connection.send(b"hello")
        assert poller.wait(5.0)[0][0] == connection.fd
        connection.on_event()
        yield connection, peer
    connection.close()


def stamp(at: float) -> bytes:
    return struct.pack("qq", int(at), int(at % 1 * 1e9))


def test_the_kernels_time_of_arrival(
    poller: Poller, pair: tuple[Connection, socket.socket]
) -> None:
    connection, peer = pair
    for _ in range(3):
        before = time.perf_counter()
        peer.sendall(b"x")
        after = time.perf_counter()
        time.sleep(0.02)
        assert poller.wait(5.0) == [(connection.fd, 1)]
        data, note = connection.receive()
        assert data == b"x"
        if note:
            break
    assert before - 0.001 <= poller.arrived_s(note) <= after + 0.001
    assert poller.now - after >= 0.02


def test_nothing_there_and_nobody_there(
    poller: Poller, pair: tuple[Connection, socket.socket]
) -> None:
    connection, peer = pair
    with pytest.raises(BlockingIOError):
        connection.receive()
    assert not connection.is_stale()
    assert poller.wait(0.0) == []
    peer.shutdown(socket.SHUT_WR)
    poller.wait(5.0)
    assert connection.receive() == (b"", b"")
    assert connection.is_stale()


def test_a_stamp_that_cannot_be_is_not_believed(poller: Poller) -> None:
    poller.wait(0.01)
    wall = time.time()
    assert poller.arrived_s(stamp(wall - 0.005)) == pytest.approx(poller.now - 0.005, abs=0.004)
    for impossible in (wall - 3600, wall + 3600, 0.0):
        assert poller.arrived_s(stamp(impossible)) == poller.now


def test_what_arrives_while_a_turn_is_worked_through_has_its_own_time(poller: Poller) -> None:
    poller.wait(0.0)
    time.sleep(0.02)
    later = time.time() - 0.005
    assert poller.now + 0.01 < poller.arrived_s(stamp(later)) < time.perf_counter()


def test_an_exact_wait_is_not_rounded_to_milliseconds(poller: Poller) -> None:
    for exact_s in (0.0004, 0.0):
        waits = []
        for _ in range(20):
            start = time.perf_counter()
            assert poller.wait(exact_s, is_exact=True) == []
            waits.append(time.perf_counter() - start)
        assert exact_s <= min(waits) < exact_s + 0.0005
    assert poller.waited_s >= 20 * 0.0004


def busy(poller: Poller, clock: Clock, events: int) -> None:
    poller._events, poller._has_stamps = events, True
    clock.now += 1.0
    poller.now = clock.now


@pytest.mark.parametrize(
    ("events", "request_s", "gathered_s"),
    [
        (5000, 2.0, 0.002),
        (5000, 60.0, 0.002),
        (5000, 1.0, 0.001),
        (1500, 1.0, 0.0),
        (5000, 0.1, 0.0),
        (100, 60.0, 0.0),
        (5000, 0.0, 0.0),
    ],
)
def test_gathering_only_where_it_pays(events: int, request_s: float, gathered_s: float) -> None:
    clock = Clock()
    poller = Poller(clock)
    busy(poller, clock, events)
    poller.pace(request_s)
    assert poller.gather_s == gathered_s
    busy(poller, clock, 0)
    poller.pace(request_s)
    assert poller.gather_s == 0.0
    poller.close()


def test_no_gathering_without_stamps() -> None:
    clock = Clock()
    poller = Poller(clock)
    busy(poller, clock, 50_000)
    poller._has_stamps = False
    poller.pace(10.0)
    assert poller.gather_s == 0.0
    poller.close()


def test_a_gathering_wait_is_no_longer_than_asked(poller: Poller) -> None:
    poller.gather_s = 0.5
    start = time.perf_counter()
    assert poller.wait(0.02) == []
    assert 0.02 <= time.perf_counter() - start < 0.4
