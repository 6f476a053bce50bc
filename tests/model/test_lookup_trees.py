"""Lookups that keep a tree: suffix decoding and NGRAM on known texts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.model.lookup import Rule, Text, play, replay_lookup
from tuner.model.lookup_trees import SuffixRule, TrieRule

LETTERS = list("abcdefghijklmnopqrstuvwxyz")


def test_a_suffix_draft_is_as_long_as_its_match() -> None:
    text = Text([*LETTERS, "-", "a"], LETTERS[1:13])
    # b is the prefill's: - a b stands nowhere, a b does: two tokens and e; five and k; the rest
    played = replay_lookup(text, SuffixRule(24))
    assert (played.steps, played.drafts, played.accepted) == (4, 3, 9)
    assert replay_lookup(text, SuffixRule(24, factor=2.0)).steps == 3
    assert replay_lookup(text, SuffixRule(24, factor=0.25)).steps == 7


def test_a_suffix_draft_has_at_most_so_many_tokens() -> None:
    text = Text([*LETTERS, "-", "a"], LETTERS[1:13])
    played = replay_lookup(text, SuffixRule(3, factor=9.0))
    assert (played.drafts, played.drafted, played.accepted) == (3, 9, 9)


def test_an_unlikely_suffix_is_not_drafted() -> None:
    prompt = ["x", "1", "x", "2", "x", "3", "x", "4"]
    text = Text(prompt, ["x", "0"])
    assert replay_lookup(text, SuffixRule(4, factor=2.0, chance=0.1)).drafts > 0
    # each of the five times that x was said (this one included) it went on in its own way
    assert replay_lookup(text, SuffixRule(4, factor=2.0, chance=0.25)).drafts == 0


def test_the_likelier_continuation_is_drafted() -> None:
    prompt = ["x", "1", "x", "2", "x", "2", "-"]
    played = replay_lookup(Text(prompt, ["x", "2", "0"]), SuffixRule(1, factor=2.0))
    assert (played.drafts, played.accepted) == (1, 1)


def test_suffixes_of_earlier_answers_are_matched_where_they_are_kept() -> None:
    one, two = Text(["p"], LETTERS), Text(["q"], LETTERS)
    alone, after = play([one, two], SuffixRule(8))
    assert (alone.accepted, after.steps) == (0, 6)
    assert play([one, two], SuffixRule(8, remembers=False))[1].accepted == 0


def test_no_run_is_longer_than_the_tree() -> None:
    one, two = Text(["p"], LETTERS), Text(["q"], LETTERS)
    shallow = play([one, two], SuffixRule(24, tree=3, factor=9.0))[1]
    deep = play([one, two], SuffixRule(24, tree=24, factor=9.0))[1]
    assert shallow.steps > 2 * deep.steps


def test_a_trie_verifies_the_same_number_of_tokens_every_step() -> None:
    played = replay_lookup(Text(["p"] * 3, LETTERS[:6]), TrieRule(8))
    assert (played.steps, played.drafts, played.drafted, played.accepted) == (6, 5, 35, 0)


def test_a_trie_learns_answers_but_not_prompts() -> None:
    rule = TrieRule(8, tree=4)
    copied = Text([*LETTERS, *"-+=:"], LETTERS)
    alone, after = play([copied, Text(["q"], LETTERS)], rule)
    assert alone.accepted == 0
    assert after.accepted > 18


def test_a_trie_drafts_several_continuations_where_it_is_wide() -> None:
    said = [*"x1ax2bx3cx1d"]
    narrow = replay_lookup(Text(["p"], said), TrieRule(3, tree=4, wide=1))
    wide = replay_lookup(Text(["p"], said), TrieRule(6, tree=4, wide=4))
    assert (wide.accepted, narrow.accepted) == (1, 0)


def test_the_latest_or_the_most_frequent_continuation_comes_first() -> None:
    teacher = Text(["p"], ["x", "1", "-", "x", "1", "+", "x", "2", "="])
    asked = Text(["q"], ["x", "1", "0"])
    latest = play([teacher, asked], TrieRule(2, tree=2, wide=1))[1]
    likeliest = play([teacher, asked], TrieRule(2, tree=2, wide=1, by_chance=True))[1]
    assert (latest.accepted, likeliest.accepted) == (0, 1)


RULES = [SuffixRule(4), SuffixRule(9, tree=5, factor=2.0), TrieRule(6, tree=5, wide=3),
         TrieRule(4, tree=3, wide=2, by_chance=True)]  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
@settings(deadline=None, max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from("abc"), min_size=1, max_size=30),
            st.lists(st.sampled_from("abc"), min_size=1, max_size=30),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_every_token_is_either_accepted_or_a_step(
    rule: Rule, requests: list[tuple[list[str], list[str]]]
) -> None:
    texts = [Text(prompt, answer) for prompt, answer in requests]
    for text, played in zip(texts, play(texts, rule), strict=True):
        assert text.answer <= played.steps + played.accepted <= text.answer + 1
        assert played.drafted >= played.accepted
