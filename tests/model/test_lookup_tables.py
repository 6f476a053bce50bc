"""llama.cpp's n-gram rules on known texts: what is copied, what is remembered, what is dropped."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.model.lookup import LookupCounts, Rule, Text, play, replay_lookup
from tuner.model.lookup_tables import MapRule, ModRule, SimpleRule

LETTERS = list("abcdefghijklmnopqrstuvwxyz")
BEFORE = [f"before{i}" for i in range(12)]


def counts(played: LookupCounts) -> tuple[int, int, int]:
    return played.drafts, played.drafted, played.accepted


def test_simple_copies_what_followed_the_latest_place() -> None:
    prompt = [*BEFORE, "x", "y", "1", "2", "0", "x", "y", "3", "4", "p", "q"]
    answer = ["x", "y", "3", "4", "5"]
    # after x y: 3 4 is proposed and right; 5 is the verification's own
    assert counts(replay_lookup(Text(prompt, answer), SimpleRule(2, 2))) == (1, 2, 2)


def test_simple_proposes_nothing_when_it_may_copy_less_than_it_matches() -> None:
    text = Text([*LETTERS, *LETTERS[:8]], LETTERS[8:20])
    assert counts(replay_lookup(text, SimpleRule(4, 3))) == (0, 0, 0)
    assert counts(replay_lookup(text, SimpleRule(4, 4))) == (3, 12, 9)


def test_simple_needs_a_long_enough_history() -> None:
    short = Text(["a", "b", "c", "d"], ["a", "b", "c", "d", "e"])
    assert counts(replay_lookup(short, SimpleRule(2, 8))) == (0, 0, 0)


def test_a_draft_ends_where_the_answer_must() -> None:
    text = Text([*BEFORE, *LETTERS, *LETTERS[:4]], LETTERS[4:10], most=6)
    # one token from the prefill, then room for four drafted ones and the verification's own
    assert counts(replay_lookup(text, SimpleRule(3, 16))) == (1, 4, 4)
    free = Text([*BEFORE, *LETTERS, *LETTERS[:4]], LETTERS[4:10], most=60)
    assert replay_lookup(free, SimpleRule(3, 16)).drafted == 16


def test_map_copies_only_where_a_whole_draft_stands() -> None:
    near = Text([*BEFORE, "x", "y", "1", "2", "x"], ["y", "1", "2", "3"])
    assert counts(replay_lookup(near, MapRule(2, 2))) == (1, 2, 2)
    assert counts(replay_lookup(near, MapRule(2, 3))) == (0, 0, 0)
    far = Text([*BEFORE, "x", "y", "1", "2", *BEFORE, "x"], ["y", "1", "2", "3"])
    assert counts(replay_lookup(far, MapRule(2, 3))) == (1, 3, 2)


def test_map_proposes_no_more_after_a_key_than_was_accepted_last_time() -> None:
    prompt = [*BEFORE, "x", "y", "1", "2", "3", "4", *LETTERS, "x"]
    answer = ["y", "1", "9", "u1", "u2", "x", "y", "1", "2"]
    # of 1 2 3 4 only 1 was right: the second time 1 alone is proposed
    assert counts(replay_lookup(Text(prompt, answer[:3]), MapRule(2, 4))) == (1, 4, 1)
    assert counts(replay_lookup(Text(prompt, answer), MapRule(2, 4))) == (2, 5, 2)


def test_mod_follows_its_table_and_drops_short_drafts() -> None:
    text = Text([*LETTERS, "-", *LETTERS[:4]], LETTERS[4:9])
    # the prefill gives e; the table knows what follows c d e
    assert counts(replay_lookup(text, ModRule(3, 4, 2))) == (1, 4, 4)
    long = Text([*LETTERS, "-", *LETTERS[:4]], LETTERS[4:9], most=40)
    assert replay_lookup(long, ModRule(3, 64, 48)).drafts == 1
    broken = Text([*LETTERS[:8], "-", *LETTERS[:4]], LETTERS[4:9])
    assert counts(replay_lookup(broken, ModRule(5, 64, 20))) == (0, 0, 0)


def test_mod_remembers_the_request_before() -> None:
    one = Text([*LETTERS, "-", *LETTERS], ["0"])
    two = Text(["new", *LETTERS[:3]], LETTERS[3:12])
    rule = ModRule(3, 4, 1)
    alone, after = replay_lookup(two, rule), play([one, two], rule)[1]
    assert alone.accepted == 0
    assert (after.drafts, after.accepted, after.steps) == (2, 7, 3)


def test_mod_takes_an_answer_in_chunks() -> None:
    words = [str(i) for i in range(40)]
    text = Text(["p"] * 2, [*words, *words[:20]])
    early = Text(["p"] * 2, [*words[:20], *words[:20]])
    assert replay_lookup(early, ModRule(3, 4, 1)).accepted < 10
    assert replay_lookup(text, ModRule(3, 4, 1)).accepted > 10


def test_mod_empties_its_table_after_five_bad_drafts() -> None:
    wrong = [Text(["new", *LETTERS[:3]], ["d", "0"], most=9) for _ in range(5)]
    right = Text(["new", *LETTERS[:3]], LETTERS[3:12])
    teacher, rule = Text([*LETTERS, "-"], ["0"]), ModRule(3, 8, 1)
    assert play([teacher, *wrong[:4], right], rule)[-1].accepted > 0
    assert play([teacher, *wrong, right], rule)[-1].accepted == 0


def test_slots_take_turns_where_the_rule_remembers_per_slot() -> None:
    wrong = Text([*BEFORE, "x", "y", "1", "2", *LETTERS, "x"], ["y", "9", "0"])
    right = Text([*BEFORE, "x", "y", "1", "2", *LETTERS, "x"], ["y", "1", "2"])
    rule = MapRule(2, 2)
    assert [each.accepted for each in play([wrong, right], rule)] == [0, 1]
    assert [each.accepted for each in play([wrong, right], rule, slots=2)] == [0, 2]
    assert [each.accepted for each in play([wrong, wrong, right], rule, slots=2)] == [0, 0, 1]
    assert play([wrong, right], ModRule(2, 4, 1), slots=2) == play(
        [wrong, right], ModRule(2, 4, 1)
    )


RULES = [SimpleRule(2, 4), SimpleRule(3, 3), MapRule(2, 3), ModRule(2, 5, 2), ModRule(3, 4, 0)]


@pytest.mark.parametrize("rule", RULES)
@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from("abc"), min_size=1, max_size=40),
            st.lists(st.sampled_from("abc"), min_size=1, max_size=40),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_every_token_is_either_accepted_or_a_step(
    rule: Rule, requests: list[tuple[list[str], list[str]]]
) -> None:
    texts = [Text(prompt, answer, most=len(answer)) for prompt, answer in requests]
    for text, played in zip(texts, play(texts, rule), strict=True):
        assert played.steps + played.accepted == text.answer
        assert played.drafted >= played.accepted
        assert played.steps - 1 >= played.drafts
