"""Ports: free ones are free, listeners are found with their owners."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from tuner.server import ports


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held


def port_of(held: socket.socket) -> int:
    return int(held.getsockname()[1])


def test_a_fresh_port_can_be_bound_and_is_not_given_to_clients() -> None:
    low, high = ports.ephemeral_range()
    for _ in range(20):
        port = ports.free_port()
        assert ports.is_free(port)
        assert not low <= port <= high


def test_a_listener_makes_a_port_taken(listener: socket.socket) -> None:
    port = port_of(listener)
    assert not ports.is_free(port)
    assert ports.owner_pids(port) == {os.getpid()}
    assert ports.owner_pids(port, among=[1]) == set()
    assert len(ports.listening_inodes(port)) == 1


def test_a_listener_on_every_address_counts() -> None:
    with socket.socket(socket.AF_INET6) as held:
        held.bind(("::", 0))
        held.listen()
        assert ports.owner_pids(port_of(held)) == {os.getpid()}
        assert not ports.is_free(port_of(held))


def test_foreign_listeners_are_those_we_do_not_hold(listener: socket.socket) -> None:
    port = port_of(listener)
    assert ports.foreign_listeners(port, [os.getpid()]) == set()
    assert ports.foreign_listeners(port, []) == ports.listening_inodes(port)
    assert ports.foreign_listeners(ports.free_port(), []) == set()


def test_a_connection_in_time_wait_does_not_make_a_port_taken(listener: socket.socket) -> None:
    port = port_of(listener)
    client = socket.create_connection(("127.0.0.1", port))
    accepted, _ = listener.accept()
    accepted.close()
    client.close()
    listener.close()
    assert ports.is_free(port)
    assert ports.owner_pids(port) == set()


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_numbers_that_are_no_port(port: int) -> None:
    assert not ports.is_free(port)
