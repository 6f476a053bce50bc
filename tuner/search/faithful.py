"""Owns whether a confirmed server answers like the baseline, as the record says it.

Greedy texts are compared one by one, sampled ones as distributions. Knows which launches are
compared only by their answers, not how they were launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.config.study import FidelityConfig
from tuner.config.workload import WorkloadConfig
from tuner.measure.fidelity import (
    FidelityVerdict,
    compare_distributions,
    compare_outputs,
    verdict,
)
from tuner.measure.records import RequestRecord
from tuner.measure.separation import least_prompts, separation

Answers = Sequence[RequestRecord]


@dataclass(frozen=True, slots=True)
class Compared:
    """The answers of three launches: the baseline, the baseline again, and the server; and those
    of all launches of both, where there were more rounds."""

    reference: Answers
    again: Answers
    server: Answers
    references: Sequence[Answers] = ()
    servers: Sequence[Answers] = ()


def faithfulness(found: Compared, config: FidelityConfig, temperature: float) -> str:
    """What `fidelity` of a record is: `match` or, for sampled answers, `alike`; `off`,
    `not checked` where a launch has no answers; else what differs."""
    if config.compare == "off":
        return "off"
    if not found.reference or not found.again or not found.server:
        return "not checked"
    is_strict = config.tolerance == "strict"
    if temperature > 0 and not is_strict:
        judged, word = _alike(found), "alike"
    else:
        control = compare_outputs(found.reference, found.again)
        judged = verdict(
            compare_outputs(found.reference, found.server), control, is_strict=is_strict
        )
        if judged.ok and not is_strict:
            judged = _never_the_same(found) or judged
        word = "match"
    return word if judged.ok else judged.text


def few_prompts(config: FidelityConfig, workload: WorkloadConfig, rounds: int) -> list[str]:
    """That so few held-out prompts cannot show changed answers; [] when they can."""
    needed = least_prompts(rounds)
    is_greedy = config.compare != "off" and workload.temperature == 0
    if not is_greedy or config.tolerance == "strict" or workload.held_out >= needed:
        return []
    return [
        f"{workload.held_out} held-out prompts are too few for the fidelity test: it needs at "
        f"least {needed} with {rounds} rounds, and finds only answers that all differ. Raise "
        "workload.held_out or confirm.rounds."
    ]


def _never_the_same(found: Compared) -> FidelityVerdict | None:
    """A mismatch that single launches of few prompts could not show."""
    seen = separation(found.references, found.servers)
    is_small = seen.prompts < least_prompts(len(found.servers))
    if not (seen.is_mismatch or (is_small and seen.is_total)):
        return None
    return FidelityVerdict(
        False,
        f"{seen.separated} of {seen.prompts} prompts are never answered as by the baseline, in "
        f"{len(found.servers)} launches of each (p = {seen.p:.2g}): speculation changes the "
        "answers",
    )


def _alike(found: Compared) -> FidelityVerdict:
    """Shifted only if it is from both launches of the baseline: each has its own chance."""
    first = compare_distributions(found.reference, found.server)
    return first if first.ok else compare_distributions(found.again, found.server)
