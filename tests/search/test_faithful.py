"""What a record says of a server's answers: texts at temperature 0, distributions above it."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.config.study import FidelityConfig
from tuner.config.workload import PromptsConfig, WorkloadConfig
from tuner.measure.records import RequestRecord
from tuner.search.faithful import Compared, faithfulness, few_prompts
from tuner.store.record import FAITHFUL

CALIBRATED, STRICT, OFF = (
    FidelityConfig(),
    FidelityConfig(tolerance="strict"),
    FidelityConfig(compare="off"),
)


def launch(texts: list[str]) -> list[RequestRecord]:
    return [
        RequestRecord(
            f"p{n}", "qa", 0.0, 0.0, 0.1, 0.2, 0.2, (0.1, 0.2), 5, len(text.split()), None,
            "stop", "", text,
        )
        for n, text in enumerate(texts)
    ]  # fmt: skip


def sampled(seed: int, length: float = 40.0, words: int = 500) -> list[RequestRecord]:
    draw = np.random.default_rng(seed)
    sizes = [max(4, int(draw.normal(length, 5))) for _ in range(48)]
    return launch([" ".join(f"w{draw.integers(words)}" for _ in range(size)) for size in sizes])


SAME = launch([f"the answer number {n} is always this one" for n in range(48)])
PARTED = launch([f"no {n}: something else from the first word on" for n in range(48)])


@pytest.mark.parametrize(
    ("found", "config", "temperature", "said"),
    [
        (Compared(SAME, SAME, SAME), CALIBRATED, 0.0, "match"),
        (Compared(SAME, SAME, SAME), STRICT, 0.0, "match"),
        (Compared(SAME, SAME, PARTED), OFF, 0.0, "off"),
        (Compared(SAME, SAME, []), CALIBRATED, 0.0, "not checked"),
        (Compared([], SAME, SAME), CALIBRATED, 0.0, "not checked"),
        (Compared(SAME, [], SAME), CALIBRATED, 0.7, "not checked"),
        (Compared(sampled(1), sampled(2), sampled(3)), CALIBRATED, 0.7, "alike"),
        (Compared(sampled(1), sampled(2), sampled(3)), OFF, 0.7, "off"),
    ],
)
def test_what_counts_as_faithful(
    found: Compared, config: FidelityConfig, temperature: float, said: str
) -> None:
    assert faithfulness(found, config, temperature) == said
    assert said in FAITHFUL


@pytest.mark.parametrize(
    ("found", "config", "temperature", "said"),
    [
        (Compared(SAME, SAME, PARTED), CALIBRATED, 0.0, "0 of 48 answers are identical"),
        (Compared(SAME, SAME, [*SAME[:47], PARTED[47]]), STRICT, 0.0, "47 of 48 answers"),
        (Compared(sampled(1), sampled(2), sampled(3)), STRICT, 0.7, "0 of 48 answers"),
        (Compared(sampled(1), sampled(2), sampled(3, length=60)), CALIBRATED, 0.7, "length"),
        (Compared(sampled(1), sampled(2), sampled(3, words=2)), CALIBRATED, 0.7, "repetition"),
    ],
)
def test_what_does_not(
    found: Compared, config: FidelityConfig, temperature: float, said: str
) -> None:
    text = faithfulness(found, config, temperature)
    assert said in text
    assert text not in FAITHFUL


def test_sampled_texts_that_all_differ_are_not_called_a_match() -> None:
    """Every text differs in the control too, so a comparison of texts could never find a fault."""
    broken = Compared(sampled(1), sampled(2), launch(["no no no no no no"] * 48))
    assert faithfulness(broken, CALIBRATED, 0.8) not in FAITHFUL


def test_a_baseline_launch_that_was_itself_odd_accuses_nobody() -> None:
    odd = sampled(5, length=60)
    assert faithfulness(Compared(odd, sampled(2), sampled(3)), CALIBRATED, 0.7) == "alike"
    assert faithfulness(Compared(sampled(2), odd, sampled(3)), CALIBRATED, 0.7) == "alike"


def test_few_sampled_answers_are_seldom_called_different() -> None:
    """Student's t, not the normal: with three prompts, chance alone must not be a mismatch."""

    def few(seed: int) -> list[RequestRecord]:
        return sampled(seed)[:3]

    cases = [Compared(few(n), few(n + 1000), few(n + 2000)) for n in range(60)]
    alike = [faithfulness(case, CALIBRATED, 0.7) == "alike" for case in cases]
    assert sum(alike) >= 58


def test_changed_answers_are_found_with_four_prompts() -> None:
    """One launch of each says p = 0.014, which no test at 1 % can call a mismatch."""
    few, other = SAME[:4], PARTED[:4]
    assert faithfulness(Compared(few, few, other), CALIBRATED, 0.0) == "match"
    rounds = Compared(few, few, other, [few] * 3, [other] * 3)
    assert faithfulness(rounds, CALIBRATED, 0.0) == (
        "4 of 4 prompts are never answered as by the baseline, in 3 launches of each "
        "(p = 0.0001): speculation changes the answers"
    )
    assert faithfulness(Compared(few, few, few, [few] * 3, [few] * 3), CALIBRATED, 0.0) == "match"


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_answers_that_all_differ_are_no_match_however_few(count: int) -> None:
    """No test can fail with two rounds of so few prompts; garbage must not win for that."""
    few, other = SAME[:count], PARTED[:count]
    rounds = Compared(few, few, other, [few] * 2, [other] * 2)
    assert f"{count} of {count} prompts are never answered" in faithfulness(rounds, CALIBRATED, 0)
    late = [*few[:-1], other[-1]]
    partly = Compared(few, few, late, [few] * 2, [late] * 2)
    assert (faithfulness(partly, CALIBRATED, 0) == "match") is (count > 1)
    unsteady = Compared(few, late, other, [few, late], [other] * 2)
    assert faithfulness(unsteady, CALIBRATED, 0) == "match"
    assert faithfulness(Compared(few, few, few, [few] * 2, [few] * 2), CALIBRATED, 0) == "match"


def test_too_few_prompts_to_fail_are_named() -> None:
    def warned(held_out: int, rounds: int, fidelity: FidelityConfig = CALIBRATED, **more) -> bool:
        workload = WorkloadConfig(
            prompts=PromptsConfig(builtin="mixed"), held_out=held_out, **more
        )
        return bool(few_prompts(fidelity, workload, rounds))

    assert warned(4, 2)
    assert not warned(5, 2)
    assert not warned(4, 3)
    assert warned(1, 4)
    assert not warned(1, 4, OFF)
    assert not warned(1, 4, STRICT)
    assert not warned(1, 4, temperature=0.7)
