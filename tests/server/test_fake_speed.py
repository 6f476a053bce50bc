"""The fake server's stated formula, and its answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.server.fake.answers import accepted_counts, write_answer
from tuner.server.fake.behaviour import Behaviour, load_behaviour, matches_environment
from tuner.server.fake.bodies import ask_of, delta_event, prompt_of
from tuner.server.fake.flags import parse
from tuner.server.fake.overrides import resolve
from tuner.server.fake.speed import (
    Speculation,
    launch_factor,
    mean_length,
    position_chances,
    step_parts,
    step_seconds,
)

CURVE = Behaviour(step_ms=10, acceptance=(0.8, 0.5), draft_cost=0.1, verify_cost=0.05)


def test_off_is_one_token_per_plain_step() -> None:
    off = Speculation()
    assert position_chances(CURVE, off) == ()
    assert mean_length(()) == 1.0
    assert step_seconds(CURVE, off, 1) == pytest.approx(0.010)


def test_a_chain_follows_the_curve_and_pays_for_it() -> None:
    chain = Speculation(steps=3, topk=1)
    assert position_chances(CURVE, chain) == pytest.approx((0.8, 0.5, 0.5))
    assert mean_length(position_chances(CURVE, chain)) == pytest.approx(1 + 0.8 + 0.4 + 0.2)
    assert step_seconds(CURVE, chain, 1) == pytest.approx(0.010 * (1 + 0.3 + 0.15))


def test_a_wider_tree_accepts_more_and_a_narrow_one_less() -> None:
    wide, narrow = Speculation(2, 4, 16), Speculation(2, 4, 4)
    chain = position_chances(CURVE, Speculation(2, 1))
    assert position_chances(CURVE, wide)[0] > chain[0]
    assert position_chances(CURVE, narrow)[0] < position_chances(CURVE, wide)[0]
    assert step_seconds(CURVE, wide, 1) > step_seconds(CURVE, narrow, 1)


def test_load_slows_steps_and_verification_more() -> None:
    loaded = Behaviour(step_ms=10, concurrency_slope=0.1, verify_load=1.0, verify_cost=0.1)
    assert step_seconds(loaded, Speculation(), 5) == pytest.approx(0.014)
    chain = Speculation(2, 1)
    cost = step_seconds(loaded, chain, 5) / step_seconds(loaded, chain, 1)
    assert cost > step_seconds(loaded, Speculation(), 5) / step_seconds(loaded, Speculation(), 1)


def test_launches_drift_reproducibly() -> None:
    assert launch_factor(Behaviour()) == 1.0
    seeded = [launch_factor(Behaviour(launch_drift=0.1, launch_seed=s)) for s in (1, 1, 2)]
    assert seeded[0] == seeded[1] != seeded[2]


@given(st.lists(st.floats(0, 1), max_size=8), st.integers(1, 300), st.integers(0, 2**63))
def test_accepted_counts_write_just_enough(chances: list[float], tokens: int, seed: int) -> None:
    counts = accepted_counts(chances, tokens, seed)
    assert all(0 <= count <= len(chances) for count in counts)
    assert sum(1 + c for c in counts) >= tokens
    assert sum(1 + c for c in counts[:-1]) < tokens
    assert counts == accepted_counts(chances, tokens, seed)


def test_counts_follow_the_chances() -> None:
    counts = accepted_counts([0.8, 0.5, 0.5], 20_000, 3)
    assert 1 + sum(counts) / len(counts) == pytest.approx(2.4, abs=0.05)


def answer(behaviour: Behaviour, prompt: str, launch: str = "1", **options: bool) -> list[str]:
    choice = {"garbage": False, "exact": False, **options}
    return list(write_answer(behaviour, prompt, 200, launch, **choice).words)


def test_greedy_answers_are_the_same_at_every_launch() -> None:
    assert answer(Behaviour(), "a") == answer(Behaviour(), "a", "2")
    assert answer(Behaviour(), "a") != answer(Behaviour(), "b")
    assert 32 <= len(answer(Behaviour(), "a")) <= 95
    assert len(answer(Behaviour(), "a", exact=True)) == 200
    assert len(answer(Behaviour(answer_tokens=7), "a")) == 7


def test_a_share_of_prompts_flips_late_tokens() -> None:
    behaviour = Behaviour(flip_share=0.2)
    prompts = [f"prompt {i}" for i in range(400)]
    changed = [p for p in prompts if answer(behaviour, p, "1") != answer(behaviour, p, "2")]
    assert 0.12 < len(changed) / 400 < 0.28
    for prompt in changed[:20]:
        one, two = answer(behaviour, prompt, "1"), answer(behaviour, prompt, "2")
        first = next(i for i, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)
        assert first >= len(one) * 0.7


def test_garbage_is_another_text_every_time() -> None:
    assert answer(Behaviour(), "a", garbage=True) != answer(Behaviour(), "a", "2", garbage=True)


@pytest.mark.parametrize(
    ("condition", "environment", "expected"),
    [
        ("NCCL_PROTO=LL128", {"NCCL_PROTO": "LL,LL128"}, True),
        ("NCCL_PROTO=LL128", {"NCCL_PROTO": "LL"}, False),
        ("NCCL_PROTO=LL128", {}, False),
        ("NCCL_P2P_DISABLE=1", {"NCCL_P2P_DISABLE": "1"}, True),
    ],
)
def test_conditions_on_the_environment(
    condition: str, environment: dict[str, str], expected: bool
) -> None:
    assert matches_environment(condition, environment) is expected


def test_behaviours_are_read_from_text_and_file(tmp_path: Path) -> None:
    assert load_behaviour("") == load_behaviour("{}") == Behaviour()
    file = tmp_path / "b.json"
    file.write_text(json.dumps({"step_ms": 3, "acceptance": [0.5]}))
    assert load_behaviour(f"@{file}") == Behaviour(step_ms=3, acceptance=(0.5,))


@pytest.mark.parametrize("text", ['{"stepms": 3}', "[1]", "{"])
def test_what_is_no_behaviour_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        load_behaviour(text)


def launched(steps: int, *overrides: dict[str, Any], **environ: str) -> Behaviour:
    behaviour = Behaviour.from_json({"step_ms": 2, "overrides": list(overrides)})
    return resolve(behaviour, {"spec-steps": steps, "spec-topk": 1}, environ)


def test_overrides_depend_on_the_launch() -> None:
    fails = {"when": {"spec-steps": [1, 2]}, "then": {"exit_code": 1}}
    slow = {"when": {"speculative": True, "env:NCCL_PROTO": "LL128"}, "then": {"step_ms": 9}}
    assert launched(1, fails).exit_code == 1
    assert launched(3, fails).exit_code is None
    assert launched(3, fails, slow, NCCL_PROTO="LL,LL128").step_ms == 9
    assert launched(3, fails, slow, NCCL_PROTO="LL").step_ms == 2
    assert launched(0, fails, slow, NCCL_PROTO="LL128").step_ms == 2


def test_overrides_by_chance() -> None:
    override = {"when": {"chance": 0.3}, "then": {"exit_code": 1}}
    hit = sum(launched(0, override).exit_code == 1 for _ in range(300))
    assert 50 < hit < 130
    seeded = Behaviour(launch_seed=4, overrides=(override,))
    codes = {resolve(seeded, {"spec-steps": 0}, {}).exit_code for _ in range(10)}
    assert len(codes) == 1


@pytest.mark.parametrize(
    "override",
    [
        {"when": {"steps": 1}, "then": {}},
        {"when": {}},
        {"when": {}, "then": {"stepms": 1}},
        "x",
    ],
)
def test_overrides_of_another_form_are_refused(override: Any) -> None:
    with pytest.raises(ValueError):
        launched(1, override)


def test_flags_resolve_as_an_engine_would() -> None:
    flags, _ = parse(["--port", "1", "--spec-steps", "3"])
    assert flags.effective()["spec-draft-tokens"] == 4
    flags, _ = parse(
        ["--port", "1", "--spec-steps", "3", "--spec-topk", "2", "--spec-draft-tokens", "8"]
    )
    assert flags.speculation == Speculation(3, 2, 8)
    assert flags.speculation.verified == 7


@pytest.mark.parametrize("argv", [["--draft-max", "3"], ["--behaviour", '{"x": 1}'], []])
def test_bad_flags_exit_with_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse([*argv, "--port", "1"] if argv else argv)
    assert "error:" in capsys.readouterr().err


def test_requests_of_every_route_are_understood() -> None:
    chat = {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}
    assert prompt_of(chat) == "a\nb"
    assert prompt_of({"prompt": "p"}) == "p"
    native = ask_of({"text": "t", "sampling_params": {"max_new_tokens": 9, "ignore_eos": True}})
    assert (native.prompt, native.max_tokens, native.exact) == ("t", 9, True)
    assert ask_of({"max_completion_tokens": 5}).max_tokens == 5
    assert ask_of({"cache_prompt": False}).use_cache is False


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/generate"])
def test_events_are_json_for_any_text(path: str) -> None:
    event = json.loads(delta_event(path, 'a "quote"\n\u00e9'))
    text = json.dumps(event)
    assert "quote" in text


def test_the_parts_of_a_step_are_the_whole() -> None:
    chain = Speculation(steps=3)
    draft, verify = step_parts(CURVE, chain)
    assert (draft, verify) == pytest.approx((0.003, 0.0115))
    assert draft + verify == pytest.approx(step_seconds(CURVE, chain, 1))
