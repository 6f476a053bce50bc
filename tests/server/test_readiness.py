"""A fake server becomes ready, and every way of not becoming so has its failure."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from tuner.server.process import ServerProcess

Start = Callable[..., ServerProcess]


def test_a_healthy_server_is_ready_and_generates(fake_server: Start) -> None:
    server = fake_server({"answer_tokens": 5})
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 50}
    answer = httpx.post(f"{server.base_url}/v1/chat/completions", json=body).json()
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "stop"
