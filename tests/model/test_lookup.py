"""Playing a lookup rule on a known text: exact counts without launching anything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.model.lookup import LookupRule, Text, replay_lookup, simple_tokens

TEXT = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]


def test_a_copied_text_is_drafted_in_pieces() -> None:
    played = replay_lookup(Text(TEXT, TEXT), LookupRule(match=2, depth=4))
    # the prefill gives a; then b alone (no match of two yet), then drafts of four and one more
    assert (played.tokens, played.steps) == (12, 4)
    assert (played.drafts, played.drafted, played.accepted) == (2, 8, 8)


def test_nothing_is_drafted_from_a_text_that_never_repeats() -> None:
    played = replay_lookup(Text(TEXT, [f"{token}'" for token in TEXT]), LookupRule(2, 4))
    assert (played.steps, played.drafts, played.accepted) == (12, 0, 0)


def test_short_drafts_are_thrown_away() -> None:
    assert replay_lookup(Text(TEXT, TEXT), LookupRule(4, 2, shortest=4)).drafts == 0


def test_a_wrong_draft_costs_its_tokens() -> None:
    prompt = ["x", "y", "1", "2", "3", "x", "y"]
    played = replay_lookup(Text(prompt, ["9", "x", "y", "7", "8"]), LookupRule(2, 3))
    assert (played.drafts, played.accepted) == (1, 0)
    assert played.drafted == 3


def test_the_latest_and_the_first_occurrence_differ() -> None:
    prompt = ["x", "y", "1", "x", "y", "2", "0"]
    answer = ["5", "x", "y", "2"]
    latest = replay_lookup(Text(prompt, answer), LookupRule(2, 1))
    first = replay_lookup(Text(prompt, answer), LookupRule(2, 1, is_latest=False))
    assert (latest.accepted, first.accepted) == (1, 0)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=40),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(1, 8),
)
def test_every_token_is_either_accepted_or_a_step(
    prompt: list[str], answer: list[str], match: int, depth: int
) -> None:
    played = replay_lookup(Text(prompt, answer), LookupRule(match, depth))
    assert played.drafted >= played.accepted
    assert played.steps >= played.drafts
    assert played.tokens - 1 <= played.steps + played.accepted <= played.tokens + 1


def test_simple_tokens_keep_the_text() -> None:
    text = "def load(path):\n    return 12345, path"
    assert "".join(simple_tokens(text)) == text
    assert simple_tokens("12345") == ["123", "45"]
    assert pytest.approx(len(simple_tokens(text)), abs=4) == 14
