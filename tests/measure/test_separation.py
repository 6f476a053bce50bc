"""Answers that are never the other server's, found with few prompts and several launches."""

from __future__ import annotations

import random

import pytest

from tuner.measure.records import RequestRecord
from tuner.measure.separation import least_prompts, separation


def launch(texts: list[str], error: str = "") -> list[RequestRecord]:
    return [
        RequestRecord(
            f"p{n}", "qa", 0.0, 0.0, 0.1, 0.2, 0.2, (), 5, 3, None, "stop", error, text
        )
        for n, text in enumerate(texts)
    ]  # fmt: skip


HONEST = launch(["a b", "c d", "e f", "g h"])
OTHER = launch(["x b", "y d", "z f", "w h"])


@pytest.mark.parametrize(
    ("rounds", "p", "is_mismatch"), [(2, (2 / 6) ** 4, False), (3, 0.1**4, True), (4, None, True)]
)
def test_four_prompts_are_enough_with_three_rounds(
    rounds: int, p: float | None, is_mismatch: bool
) -> None:
    found = separation([HONEST] * rounds, [OTHER] * rounds)
    assert (found.prompts, found.separated, found.is_mismatch) == (4, 4, is_mismatch)
    assert p is None or found.p == pytest.approx(p)


def test_fewest_prompts_are_those_with_which_it_can_fail() -> None:
    assert [least_prompts(rounds) for rounds in (2, 3, 4, 5)] == [5, 3, 2, 1]


def test_the_same_answers_are_none() -> None:
    found = separation([HONEST] * 4, [HONEST] * 4)
    assert (found.separated, found.p, found.is_mismatch) == (0, 1.0, False)


def test_few_differences_in_every_launch_are_rounding() -> None:
    """One of four prompts parts always: verifying a draft in one pass rounds otherwise."""
    found = separation([HONEST] * 4, [[*HONEST[:3], OTHER[3]]] * 4)
    assert found.separated == 1
    assert not found.is_mismatch


def test_launches_that_never_repeat_accuse_nobody() -> None:
    wild = [launch([f"{n} {k}" for n in range(8)]) for k in range(8)]
    found = separation(wild[:4], wild[4:])
    assert (found.separated, found.p, found.is_mismatch) == (8, 1.0, False)


def test_failed_requests_are_no_answers() -> None:
    assert separation([HONEST], [launch(["x"] * 4, error="reset")]).prompts == 0
    assert not separation([], []).is_mismatch


def test_servers_that_flip_between_two_answers_are_seldom_accused() -> None:
    draw = random.Random(5)

    def flipping() -> list[RequestRecord]:
        return launch([draw.choice("ab") for _ in range(6)])

    accused = sum(
        separation([flipping() for _ in range(3)], [flipping() for _ in range(3)]).is_mismatch
        for _ in range(300)
    )
    assert accused <= 3
