"""Owns whether a confirmed server answers like the baseline, as the record says it.

Greedy texts are compared one by one, sampled ones as distributions. Knows which launches are
compared only by their answers, not how they were launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.config.study import FidelityConfig
from tuner.measure.fidelity import (
    FidelityVerdict,
    compare_distributions,
    compare_outputs,
    verdict,
)
from tuner.measure.records import RequestRecord

Answers = Sequence[RequestRecord]


@dataclass(frozen=True, slots=True)
class Compared:
    """The answers of three launches: the baseline, the baseline again, and the server."""

    reference: Answers
    again: Answers
    server: Answers


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
        word = "match"
    return word if judged.ok else judged.text


def _alike(found: Compared) -> FidelityVerdict:
    """Shifted only if it is from both launches of the baseline: each has its own chance."""
    first = compare_distributions(found.reference, found.server)
    return first if first.ok else compare_distributions(found.again, found.server)
