"""Known secrets never reach a log, in whatever pieces they come."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.server.blotting import BLOT, Blotter
from tuner.server.process import ServerProcess


@given(st.lists(st.sampled_from([b"hf_", b"secret", b"hf_sec", b"ret", b"x", b"\n"]), max_size=30))
def test_no_piece_shows_a_secret(pieces: list[bytes]) -> None:
    blotter = Blotter(["hf_secret"])
    passed = b"".join([*(blotter.take(piece) for piece in pieces), blotter.rest()])
    assert b"hf_secret" not in passed
    assert passed == b"".join(pieces).replace(b"hf_secret", BLOT)


def test_only_what_may_begin_a_secret_is_held_back() -> None:
    blotter = Blotter(["hf_secret"])
    assert blotter.take(b"ready\n") == b"ready\n"
    assert blotter.take(b"token hf_se") == b"token "
    assert blotter.take(b"rvice\n") == b"hf_service\n"
    assert Blotter([]).take(b"hf_secret") == b"hf_secret"


@pytest.mark.parametrize("value", ["hf_0123456789", "one two three"])
def test_a_server_that_prints_its_token_leaves_a_mark(
    fake_server: Callable[..., ServerProcess], value: str
) -> None:
    server = fake_server({"print_env": ["HF_TOKEN", "HF_HOME"]},
                         env={"HF_TOKEN": value, "HF_HOME": "/models/hub"})  # fmt: skip
    log = server.log_path.read_text()
    assert value not in log
    assert "HF_TOKEN=***" in log
    assert "HF_HOME=/models/hub" in log
