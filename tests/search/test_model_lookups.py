"""Lookups played on the baseline's own answers: known before any is launched, and checked."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.args import FlagValue, ServerArgs
from tuner.measure.records import Block, LoadPoint, Prompt, RequestRecord
from tuner.model.acceptance import curve_from, share_of
from tuner.model.drafting import Played, agrees, fit_drafting, silent_chances, trusted
from tuner.model.lookup import LookupRule, Text, replay_lookup, simple_tokens
from tuner.model.lookup_tables import MapRule, ModRule, SimpleRule
from tuner.model.lookup_trees import SuffixRule, TrieRule
from tuner.model.observation import Designs, Observation
from tuner.search.lookup_rules import rule_of, slots_of
from tuner.search.model_lookups import enough_texts, play_lookups, texts_of
from tuner.search.model_servers import Roles, roles_of

ASKED = "Repeat: the harbour office opens at six in the morning and closes at night. " * 3
ANSWER = "the harbour office opens at six in the morning and closes at night."


def lookup(match: int, depth: int, method: str = "ngram-simple") -> Roles:
    flags: dict[str, FlagValue] = {
        "spec-type": method, f"spec-{method}-size-n": match, f"spec-{method}-size-m": depth,
    }  # fmt: skip
    return roles_of(ServerArgs(flags))


def vllm(**keys: object) -> Roles:
    return roles_of(ServerArgs({"speculative-config": keys}))


def answer(text: str, error: str = "") -> RequestRecord:
    return RequestRecord(
        prompt_id="p1", category="edit", scheduled_s=0.0, sent_s=0.0, first_s=0.1, last_s=1.0,
        end_s=1.0, chunk_s=(0.1, 1.0), prompt_tokens=9, output_tokens=9, cached_tokens=0,
        finish_reason="stop", text=text, error=error,
    )  # fmt: skip


def test_texts_come_from_good_answers_only() -> None:
    load = LoadPoint(concurrency=1)
    prompts = {"p1": Prompt("p1", ({"role": "user", "content": ASKED},))}
    good = Block(0, load, 0.0, 1.0, (answer(ANSWER), answer(ANSWER)))
    bad = Block(1, load, 0.0, 1.0, (answer(ANSWER, "timeout"), answer("")))
    found = texts_of([bad, good], prompts)
    assert [("".join(asked), "".join(said)) for asked, said in found] == [(ASKED, ANSWER)]
    assert texts_of([bad], prompts) == []


def test_rules_by_method() -> None:
    assert rule_of(lookup(4, 8)) == SimpleRule(4, 8)
    assert rule_of(lookup(4, 8, "ngram-map-k")) == MapRule(4, 8)
    assert rule_of(lookup(4, 8, "ngram-map-k4v")) is None
    assert rule_of(Roles("EAGLE3", 5, 5, 1, 0, 5, False)) is None
    found = vllm(
        method="ngram", num_speculative_tokens=8, prompt_lookup_min=2, prompt_lookup_max=4
    )
    assert rule_of(found) == LookupRule(4, 8, least=2, is_latest=False)
    found = vllm(method="ngram", num_speculative_tokens=8, prompt_lookup_max=4)
    assert rule_of(found) == LookupRule(4, 8, least=4, is_latest=False)


def test_flags_that_are_not_given_have_the_engines_values() -> None:
    bare: dict[str, FlagValue] = {"spec-type": "ngram-mod"}
    assert rule_of(roles_of(ServerArgs(bare))) == ModRule(24, 64, 48)
    assert rule_of(roles_of(ServerArgs({**bare, "spec-ngram-mod-n-min": 0}))) == ModRule(24, 64, 0)
    assert rule_of(roles_of(ServerArgs({"spec-type": "ngram-simple"}))) == SimpleRule(12, 48)
    assert rule_of(vllm(method="ngram", num_speculative_tokens=3)) == LookupRule(
        5, 3, least=5, is_latest=False
    )


def test_texts_are_split_by_the_models_tokenizer_where_there_is_one() -> None:
    load = LoadPoint(concurrency=1)
    prompts = {"p1": Prompt("p1", ({"role": "user", "content": "a b c"},))}
    good = Block(0, load, 0.0, 1.0, (answer("d e"),))
    assert texts_of([good], prompts, str.split) == [(["a", "b", "c"], ["d", "e"])]


def test_many_rules_with_trees_are_played_on_fewer_texts_or_learned() -> None:
    assert [enough_texts(12, trees) for trees in (0, 24, 48, 96, 97)] == [12, 12, 6, 3, 0]
    assert [enough_texts(2, trees) for trees in (24, 48)] == [2, 0]
    texts = [(list("abcabc"), list("abcabc"))]
    many = [
        vllm(method="suffix", num_speculative_tokens=1 + index // 10, spec_factor=index,
             suffix_decoding_max_spec_factor=1.0 + index / 10)
        for index in range(40)
    ]  # fmt: skip
    played = play_lookups([*many, lookup(2, 2)], texts)
    assert played is not None
    assert np.isnan(played.accepted[:40]).all()
    assert not played.silent[:40].any()
    few = play_lookups(many[:3], texts)
    assert few is not None
    assert np.isfinite(few.accepted).all()


def test_slots_are_those_that_the_arguments_name() -> None:
    assert slots_of(lookup(3, 4)) == 1
    assert slots_of(roles_of(ServerArgs({"spec-type": "ngram-mod", "parallel": 4}))) == 4


def test_trees_by_method() -> None:
    assert rule_of(vllm(method="suffix", num_speculative_tokens=8)) == SuffixRule(8, 24, 1.0, 0.1)
    found = vllm(
        method="suffix",
        suffix_decoding_max_tree_depth=9,
        suffix_decoding_min_token_prob=0.3,
        suffix_decoding_max_cached_requests=0,
    )
    assert rule_of(found) == SuffixRule(9, 9, 1.0, 0.3, remembers=False)
    flags: dict[str, FlagValue] = {
        "speculative-algorithm": "NGRAM",
        "speculative-num-draft-tokens": 12,
        "speculative-ngram-max-bfs-breadth": 4,
    }
    assert rule_of(roles_of(ServerArgs(flags))) == TrieRule(12, 18, 1, 4)
    frequent = {**flags, "speculative-ngram-match-type": "PROB"}
    assert rule_of(roles_of(ServerArgs(frequent))) == TrieRule(12, 18, 1, 4, by_chance=True)
    corpus = {**flags, "speculative-ngram-external-corpus-path": "said.jsonl"}
    assert rule_of(roles_of(ServerArgs(corpus))) is None


def test_what_is_played_is_what_the_rule_counts() -> None:
    texts = [(simple_tokens(ASKED), simple_tokens(ANSWER))]
    played = play_lookups([lookup(3, 4), lookup(3, 8), Roles("none", 0, 0, 1, 0, 0, False)], texts)
    assert played is not None
    counts = replay_lookup(Text(*texts[0]), SimpleRule(3, 8))
    covered = (counts.drafted / 8 + counts.accepted) / counts.tokens
    assert share_of(played.coverages)[1] == pytest.approx(min(covered, 0.995), abs=1e-3)
    assert played.accepted[1] == pytest.approx(counts.accepted / (counts.drafted / 8))
    assert np.isnan(played.accepted[2])
    assert play_lookups([lookup(3, 4)], []) is None


def designs(depths: list[float]) -> Designs:
    depth = np.array(depths)
    ones = np.ones(len(depth))
    traits = (np.log2(depth) / 6)[:, None]
    return Designs(traits, traits, depth, depth, ones, ones * 0, ones * 0)


def counted(server: int, depth: float, drafts: float, accepted: float) -> Observation:
    row = [400.0, 4.0, 4.0, 400.0 - accepted, drafts * depth, accepted]
    return Observation(server, 0.0, np.array([row]))


def played_of(made: Designs, levels: list[float], methods: str = "") -> Played:
    accepted = curve_from(()).accepted(np.array(levels), made.depth)
    numbers = np.array([ord(letter) for letter in methods or "a" * len(levels)])
    return Played(accepted, np.zeros(len(levels)), np.zeros(len(levels), dtype=bool), numbers)


def test_computed_counts_are_believed_until_launches_disagree() -> None:
    made = designs([2.0, 4.0, 8.0, 16.0])
    played = played_of(made, [0.5, 0.8, 1.1, 3.0])
    before = fit_drafting(made, [], played)
    assert list(before.levels) == pytest.approx([0.5, 0.8, 1.1, 3.0], abs=1e-3)
    assert before.level_sds.max() < fit_drafting(made, []).level_sds.min()
    other = [counted(0, 2.0, 60, 110), counted(1, 4.0, 50, 60), counted(2, 8.0, 40, 10)]
    after = fit_drafting(made, other, played)
    assert after.levels[2] < 0  # the launches say so, whatever was computed


def test_agreement_is_about_differences() -> None:
    computed = np.array([0.0, 1.0, 2.0])
    assert agrees(computed + 0.7, computed)  # a constant offset is learned
    assert not agrees(np.array([2.0, 1.0, 0.0]), computed)
    assert not agrees(computed, np.array([0.0, np.nan, 2.0]))


def test_one_method_whose_rule_is_wrong_does_not_spoil_another() -> None:
    made = designs([2.0, 4.0, 8.0, 16.0, 3.0, 5.0, 9.0, 17.0])
    played = played_of(made, [0.1, 0.8, 1.6, 2.4] * 2, "aaaabbbb")
    true = curve_from(()).accepted(np.array([0.3, 1.0, 1.8]), made.depth[:3])
    launches = [
        counted(index, depth, 60, 60 * accepted)
        for index, (depth, accepted) in enumerate(zip(made.depth[:3], true, strict=True))
    ]
    launches += [counted(4, 3.0, 60, 150), counted(5, 5.0, 60, 60), counted(6, 9.0, 60, 10)]
    found = fit_drafting(made, launches, played)
    assert found.levels[3] == pytest.approx(2.6, abs=0.2)  # as computed, and 0.2 above
    assert found.levels[7] < 1.0  # learned from its own launches
    assert found.level_sds[3] < found.level_sds[7]


def test_a_method_that_was_said_to_be_silent_and_drafts_is_learned() -> None:
    values, computed = np.array([0.5, 0.6]), np.array([np.nan, np.nan, 0.4])
    methods, servers = np.array([0, 0, 0]), np.array([0, 1])
    assert not trusted(methods, servers, values, computed).any()
    assert list(trusted(methods, servers[:0], values[:0], computed)) == [False, False, True]


def test_what_is_silent_on_the_text_is_likely_to_be_silent() -> None:
    made = designs([2.0, 4.0, 64.0])
    nothing = Played(np.full(3, np.nan), np.full(3, np.nan), np.array([False, True, True]),
                     np.array([0, 0, 0]))  # fmt: skip
    before = silent_chances(made, {}, nothing)
    assert list(before) == [0.02, 0.6, 0.6]
    drafted = silent_chances(made, {1: False}, nothing)
    assert drafted[1] == 0.0
    assert drafted[2] > 0.4


def test_a_text_tells_the_acceptance_whatever_the_curve_of_the_launches() -> None:
    made = designs([2.0, 4.0, 8.0, 16.0])
    played = played_of(made, [0.5, 0.8, 1.1, 1.4])
    first = counted(1, 4.0, 60, 60 * float(played.accepted[1]))
    steep = Observation(1, 0.0, first.blocks, (0.9, 0.5, 0.2, 0.1))
    for launch in (first, steep):
        found = fit_drafting(made, [launch], played)
        accepted = found.curve.accepted(found.levels, made.depth)
        assert list(accepted) == pytest.approx(list(played.accepted), rel=0.05)
