"""The workload: mixed alike in every block, the same for the same seed, and real text."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.config.workload import (
    LoadConfig,
    OutputTokensConfig,
    PromptsConfig,
    WorkloadConfig,
)
from tuner.errors import UsageError
from tuner.measure.prompt_files import read_prompts
from tuner.measure.prompts import BUILTIN, Workload, build_workload
from tuner.measure.realtext import looks_random, share_random
from tuner.measure.records import LoadPoint

MIXED = PromptsConfig(builtin="mixed")


def build(seed: int = 7, **values: Any) -> Workload:
    return build_workload(WorkloadConfig(**{"prompts": MIXED, **values}), seed)


def ids(blocks: Any) -> list[str]:
    return [prompt.id for block in blocks for prompt in block]


def test_the_builtin_prompts() -> None:
    prompts = read_prompts(BUILTIN)
    counts = Counter(prompt.category for prompt in prompts)
    assert len(prompts) >= 120
    assert set(counts) == {"editing", "extraction", "qa", "code", "chat"}
    assert counts["editing"] >= 40
    assert len({prompt.messages[0]["content"] for prompt in prompts}) == len(prompts)
    assert all(130 <= len(prompt.messages[0]["content"]) <= 1300 for prompt in prompts)


def test_search_and_held_out_prompts_are_disjoint() -> None:
    workload = build()
    searched, held_out = ids(workload.blocks), ids(workload.held_out_blocks)
    warm_up = [prompt.id for prompt in workload.warm_up_prompts]
    assert [len(block) for block in workload.blocks] == [8] * 6
    assert len(held_out) == 48
    everything = searched + held_out + warm_up
    assert len(set(everything)) == len(everything) == 122


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_every_block_has_the_mix(seed: int) -> None:
    workload = build(seed)
    for block in (*workload.blocks, *workload.held_out_blocks):
        counts = Counter(prompt.category for prompt in block)
        assert 2 <= counts["editing"] <= 4
        assert all(counts[name] in (0, 1, 2) for name in ("extraction", "qa", "code", "chat"))


def test_the_seed_decides_and_the_digest_tells() -> None:
    assert build(7) == build(7)
    assert build(7).digest != build(8).digest
    assert ids(build(7).blocks) != ids(build(8).blocks)
    assert build(7).digest != build(7, temperature=0.5).digest
    assert build(7).digest != build(7, load=[{"concurrency": 2}]).digest


def test_settings_reach_the_workload() -> None:
    workload = build(
        output_tokens=OutputTokensConfig(exactly=64),
        temperature=0.7,
        load=[LoadConfig(concurrency=8), LoadConfig(rate=2.5, arrivals="constant")],
        warm_up=3,
        cache="flush",
    )
    assert (workload.sampling.max_tokens, workload.sampling.exact_tokens) == (64, True)
    assert workload.sampling.seed == 7
    assert workload.loads == (LoadPoint(8), LoadPoint(None, 2.5, "constant"))
    assert [load.label for load in workload.loads] == ["c8", "constant-r2.5"]
    assert (workload.warm_up, workload.cache) == (3, "flush")
    assert build().sampling.seed is None


def test_too_few_prompts_says_how_many() -> None:
    with pytest.raises(UsageError) as caught:
        build(held_out=100)
    assert caught.value.message == (
        "workload.prompts: must hold at least 148 distinct prompts (6 blocks of 8 + 100 held "
        "out), got 122."
    )
    assert caught.value.hint == "Add 26 prompts, or lower held_out to 74."
    with pytest.raises(UsageError, match="got 44"):
        build(prompts=PromptsConfig(builtin="mixed", categories=["editing"]))


def test_categories_are_chosen_and_checked() -> None:
    chosen = PromptsConfig(builtin="mixed", categories=["code", "qa"])
    workload = build(prompts=chosen, blocks=2, block_size=4, held_out=8)
    assert {p.category for block in workload.blocks for p in block} == {"code", "qa"}
    with pytest.raises(UsageError, match=r"must be among chat, code, .* got poems"):
        build(prompts=PromptsConfig(builtin="mixed", categories=["code", "poems"]))


def test_repeated_prompts_count_once(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    entry = json.dumps({"prompt": "What is the difference between rain and snow?"})
    file.write_text("\n".join([entry] * 9))
    with pytest.raises(UsageError, match="got 1"):
        build(prompts=PromptsConfig(file=str(file)), blocks=1, block_size=4, held_out=4)


def test_warm_up_falls_back_to_the_first_prompts() -> None:
    workload = build(held_out=74)
    assert [p.id for p in workload.warm_up_prompts] != []
    assert {p.id for p in workload.warm_up_prompts} == {p.id for p in workload.blocks[0]}


def test_uneven_held_out_prompts_make_nearly_equal_blocks() -> None:
    assert [len(block) for block in build(held_out=20).held_out_blocks] == [10, 10]
    assert build(held_out=0).held_out_blocks == ()


def test_a_trace_is_read(tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    file.write_text("0\n1\n2\n")
    workload = build(load=[LoadConfig(trace=str(file))])
    assert workload.traces == {str(file): (0.0, 1.0, 2.0)}
    assert workload.loads[0].label == "trace"


def test_fresh_prompts() -> None:
    workload = build()
    prompt = workload.blocks[0][0]
    first, again = workload.fresh(prompt, "c1 0 0"), workload.fresh(prompt, "c1 0 0")
    other = workload.fresh(prompt, "c8 0 0")
    assert first == again != other
    assert first.id == prompt.id
    assert first.messages[0]["content"].endswith(prompt.messages[0]["content"])
    assert first.messages[0]["content"][:14] != other.messages[0]["content"][:14]
    assert replace(workload, seed=8).fresh(prompt, "c1 0 0") != first


# ---- real text ----------------------------------------------------------------------------------
def random_words(draw: random.Random, count: int) -> str:
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 7))) for _ in range(count)]
    return " ".join(word.capitalize() if draw.random() < 0.3 else word for word in words)


def test_random_tokens_are_refused_with_the_reason(tmp_path: Path) -> None:
    draw = random.Random(1)
    file = tmp_path / "random.txt"
    file.write_text("\n".join(random_words(draw, 60) for _ in range(40)))
    with pytest.raises(UsageError, match=r"must be real text, got 100% .* about a quarter"):
        build(prompts=PromptsConfig(file=str(file)), blocks=2, block_size=4, held_out=4)


def test_many_scripts_at_once_are_random() -> None:
    assert looks_random("word слово λόγος 単語 מילה शब्द " * 3)


@pytest.mark.parametrize(
    "text",
    [
        "short",
        "Почему луна всегда показывает земле одну и ту же сторону? " * 4,
        "为什么天空是蓝色的？请用简单的话解释。" * 6,
        "Warum zeigt der Mond der Erde immer dieselbe Seite? Erkläre es in drei Sätzen. " * 3,
        "def add(a, b):\n    return a + b\n\nfor item in items:\n    print(add(item, 1))\n" * 3,
    ],
)
def test_real_text_is_not_called_random(text: str) -> None:
    assert not looks_random(text)


def test_the_builtin_prompts_are_real_text() -> None:
    assert share_random([p.messages[0]["content"] for p in read_prompts(BUILTIN)]) == 0.0
    assert share_random([]) == 0.0
