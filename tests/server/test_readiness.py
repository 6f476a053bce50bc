"""A fake server becomes ready, and every way of not becoming so has its failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest

from tuner.server.process import ServerProcess
from tuner.server.readiness import lasting_stranger

Start = Callable[..., ServerProcess]


def test_a_healthy_server_is_ready_and_generates(fake_server: Start) -> None:
    server = fake_server({"answer_tokens": 5})
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 50}
    answer = httpx.post(f"{server.base_url}/v1/chat/completions", json=body).json()
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "stop"


def looks(*seen: int | None) -> Callable[[], int | None]:
    """One entry per look, the last one for ever."""
    left = list(seen)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize(
    ("seen", "stranger"),
    [
        ((None,), None),
        ((0, 0, 0, None), None),  # our server while it dies: sockets listen, nobody holds them
        ((41, 41, None), None),  # a child of ours that was forked between the two reads
        ((41,), 41),
        ((0, 41), 41),
    ],
)
def test_only_a_listener_who_stays_is_a_stranger(
    seen: tuple[int | None, ...], stranger: int | None
) -> None:
    assert asyncio.run(lasting_stranger(looks(*seen))) == stranger
