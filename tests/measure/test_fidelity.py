"""Answers compared with the baseline's, against the noise floor of the machine."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.fidelity import (
    MatchReport,
    compare_distributions,
    compare_outputs,
    repetition,
    verdict,
)
from tuner.measure.records import RequestRecord


def answer(name: str, text: str, finish: str = "stop", error: str = "") -> RequestRecord:
    tokens = len(text.split())
    return RequestRecord(
        name, "qa", 0.0, 0.0, 0.1, 0.2, 0.2, (0.1, 0.2), 5, tokens, None, finish, error, text
    )


def answers(texts: list[str]) -> list[RequestRecord]:
    return [answer(f"p{n}", text) for n, text in enumerate(texts)]


def report(matches: int, n: int = 48, early: int = 0) -> MatchReport:
    return MatchReport(matches / n, 0.6 if matches < n else 1.0, n, matches, (), early)


def test_share_and_first_divergence() -> None:
    found = compare_outputs(
        answers(["same text", "0123456789", "0123456789", "ab"]),
        answers(["same text", "01234x", "x", "ab and more"]),
    )
    assert (found.n, found.matches, found.share) == (4, 1, 0.25)
    assert found.first_divergence == 0.5
    assert found.examples == ("p1", "p2", "p3")
    assert found.early == 1


def test_only_answers_of_both_are_compared() -> None:
    ours = [answer("p0", "a"), answer("p1", "b", error="reset"), answer("p9", "c")]
    assert compare_outputs(answers(["a", "b"]), ours).n == 1
    nothing = compare_outputs([], ours)
    assert math.isnan(nothing.share)
    assert not verdict(nothing).ok


@given(st.lists(st.text(max_size=8), min_size=1, max_size=8))
def test_a_launch_matches_itself(texts: list[str]) -> None:
    found = compare_outputs(answers(texts), answers(texts))
    assert (found.share, found.first_divergence) == (1.0, 1.0)
    assert verdict(found).ok


@pytest.mark.parametrize(
    ("matches", "control", "ok"),
    [
        (48, 48, True),
        (46, 48, True),
        (38, 40, True),
        (38, 38, True),
        (24, 46, False),
        (0, 48, False),
        (30, 30, True),
    ],
)
def test_verdict_against_the_control(matches: int, control: int, ok: bool) -> None:
    assert verdict(report(matches), report(control)).ok is ok


def test_a_verdict_says_why() -> None:
    bad = verdict(report(24), report(46))
    assert bad.text.startswith(
        "24 of 48 answers are identical to the baseline's, 46 of 48 between two launches without "
        "speculation (p = "
    )
    assert bad.text.endswith("speculation changes the answers, after 60% of the text")
    good = verdict(report(44), report(45))
    assert good.text.endswith("no more than the machine's own noise")


def test_answers_that_part_at_once_are_a_mismatch() -> None:
    """As many differ as in the control, but from the first words on: other answers."""
    assert not verdict(report(30, early=18), report(30, early=1)).ok


def test_strict() -> None:
    assert verdict(report(48), is_strict=True).ok
    found = verdict(report(47), report(40), is_strict=True)
    assert not found.ok
    assert "strict" in found.text


def test_without_a_control_the_machine_is_taken_to_be_exact() -> None:
    assert verdict(report(46)).ok
    assert not verdict(report(38)).ok


# ---- sampled answers ----------------------------------------------------------------------------
def sampled(seed: int, length: float = 40.0, words: int = 500) -> list[RequestRecord]:
    draw = np.random.default_rng(seed)
    return answers(
        [
            " ".join(f"w{draw.integers(words)}" for _ in range(int(draw.normal(length, 5))))
            for _ in range(48)
        ]
    )


def test_sampled_answers_of_one_distribution() -> None:
    kept = sum(compare_distributions(sampled(seed), sampled(seed + 1000)).ok for seed in range(40))
    assert kept >= 38


def test_shifts_of_length_and_repetition_are_found() -> None:
    assert "length" in compare_distributions(sampled(1), sampled(2, length=50)).text
    assert "repetition" in compare_distributions(sampled(1), sampled(2, words=2)).text
    cut = [answer(f"p{n}", "a b", finish="length") for n in range(48)]
    done = [answer(f"p{n}", "a b") for n in range(48)]
    assert compare_distributions(done, cut).text.endswith("finish by length")
    assert compare_distributions(done, done).ok
    assert not compare_distributions(done, []).ok


def test_repetition() -> None:
    assert repetition("a b c d e f g") == 0.0
    assert repetition("a b c d a b c d") == pytest.approx(0.2)
    assert repetition("no no no no no no no no") == pytest.approx(0.8)
    assert repetition("short") == 0.0
