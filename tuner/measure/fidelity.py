"""Owns whether speculation changed the answers: greedy texts compared with the baseline's.

Two launches of one server already differ in some answers (another batch shape, another
rounding). That off-versus-off control is the noise floor; only what exceeds it is a mismatch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.measure.distributions import fisher_less, t_quantile
from tuner.measure.records import RequestRecord

_ALPHA = 0.01


@dataclass(frozen=True, slots=True)
class MatchReport:
    """How many answers of two launches are the same text.

    Args:
        share: answers with identical text, over answers compared; NaN when none were.
        first_divergence: median share of the reference text before the first different
            character, over answers that differ; 1.0 when none differ.
        n: answers compared: both succeeded.
        matches: answers with identical text.
        examples: ids of prompts whose answers differ, at most five.
        early: answers that part within their first tenth.
    """

    share: float
    first_divergence: float
    n: int
    matches: int = 0
    examples: tuple[str, ...] = ()
    early: int = 0


@dataclass(frozen=True, slots=True)
class FidelityVerdict:
    """Whether outputs are faithful, and the sentence that says why."""

    ok: bool
    text: str


def compare_outputs(
    reference: Sequence[RequestRecord], other: Sequence[RequestRecord]
) -> MatchReport:
    """Compare the answers of two launches, prompt by prompt, where both succeeded."""
    ours = {record.prompt_id: record.text for record in other if record.ok}
    pairs = [
        (record.prompt_id, record.text, ours[record.prompt_id])
        for record in reference
        if record.ok and record.prompt_id in ours
    ]
    parted = {name: _divergence(text, mine) for name, text, mine in pairs if text != mine}
    matches = len(pairs) - len(parted)
    return MatchReport(
        share=matches / len(pairs) if pairs else math.nan,
        first_divergence=float(np.median(list(parted.values()))) if parted else 1.0,
        n=len(pairs),
        matches=matches,
        examples=tuple(parted)[:5],
        early=sum(place < 0.1 for place in parted.values()),
    )


def verdict(
    report: MatchReport, control: MatchReport | None = None, *, is_strict: bool = False
) -> FidelityVerdict:
    """Judge a comparison with the baseline against the off-versus-off control.

    Calibrated: a mismatch when Fisher's exact test, one-sided at 1 %, finds the match share
    lower than the control's, or answers parting early more often. Without a control, the
    control is taken to be perfect. Strict: every answer must be identical.
    """
    if report.n == 0:
        return FidelityVerdict(False, "no answers could be compared with the baseline's")
    shown = f"{report.matches} of {report.n} answers are identical to the baseline's"
    if report.matches == report.n:
        return FidelityVerdict(True, shown)
    if is_strict:
        return FidelityVerdict(False, f"{shown}; strict comparison allows no difference")
    floor = control or MatchReport(1.0, 1.0, report.n, report.n)
    same = f"{floor.matches} of {floor.n} between two launches without speculation"
    p_match = fisher_less(report.matches, report.n, floor.matches, floor.n)
    p_early = fisher_less(
        report.n - report.early, report.n, floor.n - floor.early, floor.n
    )  # fmt: skip
    if min(p_match, p_early) < _ALPHA:
        return FidelityVerdict(
            False,
            f"{shown}, {same} (p = {min(p_match, p_early):.2g}): speculation changes the "
            f"answers, after {report.first_divergence:.0%} of the text",
        )
    return FidelityVerdict(True, f"{shown}, {same}: no more than the machine's own noise")


def compare_distributions(
    reference: Sequence[RequestRecord], other: Sequence[RequestRecord]
) -> FidelityVerdict:
    """Judge sampled answers (temperature above 0): length, finish reasons, repetition.

    Texts differ by chance then; a shift of these by more than chance (paired t-test, two-sided
    1 % each, over prompts) says that the output distribution changed.
    """
    ours = {record.prompt_id: record for record in other if record.ok}
    pairs = [(r, ours[r.prompt_id]) for r in reference if r.ok and r.prompt_id in ours]
    if len(pairs) < 2:
        return FidelityVerdict(False, "too few answers could be compared with the baseline's")
    shifts: dict[str, list[tuple[float, float]]] = {
        "length": [(a.output_tokens or 0, b.output_tokens or 0) for a, b in pairs],
        "finish by length": [
            (float(a.finish_reason == "length"), float(b.finish_reason == "length"))
            for a, b in pairs
        ],
        "repetition": [(repetition(a.text), repetition(b.text)) for a, b in pairs],
    }
    shifted = [name for name, values in shifts.items() if _is_shifted(values)]
    if shifted:
        return FidelityVerdict(False, f"sampled answers changed in {', '.join(shifted)}")
    return FidelityVerdict(True, f"{len(pairs)} sampled answers keep length, end and repetition")


def repetition(text: str) -> float:
    """Share of a text's 4-word sequences that occurred in it before; 0 for short texts."""
    words = text.split()
    grams = Counter(tuple(words[at : at + 4]) for at in range(len(words) - 3))
    total = sum(grams.values())
    return 1 - len(grams) / total if total else 0.0


def _divergence(reference: str, other: str) -> float:
    """Share of the reference before the first different character."""
    common = next(
        (at for at, (a, b) in enumerate(zip(reference, other, strict=False)) if a != b),
        min(len(reference), len(other)),
    )
    return common / len(reference) if reference else 0.0


def _is_shifted(values: Sequence[tuple[float, float]]) -> bool:
    gaps = np.array([after - before for before, after in values])
    error = float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    if error == 0:
        return bool(gaps.mean() != 0) and 2.0 ** (1 - len(gaps)) < _ALPHA
    return bool(abs(gaps.mean()) / error > t_quantile(1 - _ALPHA / 2, len(gaps) - 1))
