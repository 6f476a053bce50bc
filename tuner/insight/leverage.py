"""Owns the explanation of a study: where the time goes, what was accepted, which lever is largest.

Reads stored records alone; predictions are labelled with their basis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tuner import units
from tuner.insight.clock import clock_of
from tuner.insight.counts import DEPTH, WIDTH, assumed_steps, flag_number
from tuner.insight.crossover import Crossover, concurrency_of, find_crossover
from tuner.insight.curve import Curve, curve_of
from tuner.insight.cycle import Cycle, find_cycle
from tuner.insight.evidence import (
    counted,
    deepest_curve,
    depths_tried,
    draft_head,
    flags_lever,
    load_lever,
    nccl_saving,
    shares_clock,
    speed_noise,
)
from tuner.insight.inert import Inert, find_inert
from tuner.insight.levers import Ground, Lever, break_even, find_levers
from tuner.insight.published import Published, compare_published
from tuner.insight.whatif import WhatIf
from tuner.store.record import TrialRecord
from tuner.store.stored import StoredStudy

TREES = "sglang"
"""The engine whose drafts may be trees; vLLM's and llama.cpp's are chains."""

RANKS = ("tp-size", "tensor-parallel-size", "tp")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything `tuner explain` says; parts that are not known are None or empty."""

    study: str
    trial: TrialRecord | None
    flags: Lever | None = None
    cycle: Cycle | None = None
    curve: Curve | None = None
    levers: tuple[Lever, ...] = ()
    crossover: Crossover | None = None
    published: Published | None = None
    inert: tuple[Inert, ...] = ()
    is_simulated: bool = False
    what_if: WhatIf | None = None
    break_even: float | None = None
    most: float = 0.0

    @property
    def largest(self) -> Lever | None:
        """The lever with the largest gain that is certainly one."""
        certain = [each for each in self.levers if each.basis != "measured" and each.low > 1.0]
        return max(certain, key=lambda each: each.ratio, default=None)

    @property
    def versus(self) -> float | None:
        """The explained server's ratio to the baseline, the confirmed one where there is one."""
        return self.flags.ratio if self.flags else None

    @property
    def sentence(self) -> str:
        """The largest lever and what to do next."""
        if self.trial is None:
            return "No speculative server was measured: run the study first."
        if self.loses:
            return self._losing()
        largest = self.largest
        if largest is None:
            return "No lever promises more than its own uncertainty: keep what is recommended."
        text = (
            f"Largest lever: {largest.name} ({largest.change}) would give "
            f"{units.ratio(largest.ratio)} of trial {self.trial.number}"
        )
        text += self._of_baseline(largest)
        if self.flags is not None:
            more = largest.ratio > self.flags.ratio
            text += f"; {'more' if more else 'less'} than all flags together"
            text += f" ({units.ratio(self.flags.ratio)})"
        return f"{text}. Next: {largest.next_step}."

    def _of_baseline(self, lever: Lever) -> str:
        """The same as a ratio to the baseline, and whether that is enough."""
        if not self.versus:
            return ""
        reached = self.versus * lever.ratio
        return f", {units.ratio(reached)} baseline{'' if reached >= 1 else ' (still slower)'}"

    @property
    def loses(self) -> bool:
        """True when the explained server is certainly slower than the baseline."""
        return self.flags is not None and self.flags.high < 1.0

    def _losing(self) -> str:
        """The sentence where speculation costs more than it gives."""
        assert self.trial is not None
        assert self.flags is not None
        text = f"Speculation loses here: trial {self.trial.number} runs at "
        text += f"{units.ratio(self.flags.ratio)} baseline"
        largest = self.largest
        reached = self.flags.ratio * largest.ratio if largest else 0.0
        if largest is not None:
            verb = "would still give only" if reached < 1 else "would give"
            text += f"; the largest lever, {largest.name} ({largest.change}), {verb} "
            text += f"{units.ratio(reached)}"
        text += self._even()
        if largest is not None and reached >= 1:
            return f"{text}. Next: {largest.next_step}; until then keep the baseline."
        return f"{text}. Next: serve without speculation, or try another method."

    def _even(self) -> str:
        """From which acceptance length the draft would pay."""
        if self.break_even is None or self.curve is None:
            return ""
        now, most = f"now {self.curve.length:.2f}", f"at most {self.most:g} at this depth"
        if self.break_even > self.most:
            return (
                f". It would pay from acceptance length {self.break_even:.2f}, but {most} ({now})"
            )
        return f". It pays from acceptance length {self.break_even:.2f} ({now}, {most})"

    def to_json(self) -> dict[str, Any]:
        """The `--json` document."""
        versus = self.versus
        return {
            "study": self.study,
            "trial": self.trial.number if self.trial else None,
            "vs_baseline": versus,
            "cycle": self.cycle.to_json() if self.cycle else None,
            "acceptance": self.curve.to_json() if self.curve else None,
            "flags": self.flags.to_json(None) if self.flags else None,
            "levers": [lever.to_json(versus) for lever in self.levers],
            "crossover": self.crossover.to_json() if self.crossover else None,
            "published": self.published.to_json() if self.published else None,
            "inert": [{"name": i.name, "pairs": i.pairs, "text": i.sentence} for i in self.inert],
            "is_simulated": self.is_simulated,
            "break_even_acceptance_length": self.break_even,
            "what_if": self.what_if.to_json() if self.what_if else None,
            "conclusion": self.sentence,
        }


def explain(study: StoredStudy) -> Explanation:
    """Explain a stored study by its recommended or fastest speculative server."""
    trial = subject_of(study)
    inert = tuple(find_inert(study.trials, speed_noise(study)))
    if trial is None:
        return Explanation(study.name, None, inert=inert, is_simulated=study.is_simulated)
    baselines = [each for each in study.trials if each.state == "baseline"]
    curve = curve_of(trial.acceptance, trial.acceptance_length)
    published = _published(trial, curve)
    found = Explanation(
        study=study.name,
        trial=trial,
        flags=flags_lever(study, trial),
        curve=curve,
        crossover=find_crossover(trial, baselines),
        published=published,
        inert=inert,
        is_simulated=study.is_simulated,
    )
    return _with_levers(study, trial, found)


def subject_of(study: StoredStudy) -> TrialRecord | None:
    """The recommended server; else the fastest speculative one that was measured in full.

    A synthetic one only where there is no other.
    """
    found = study.recommendation
    if found is not None and found.verdict == "use" and found.trial is not None:
        return study.trial(found.trial)
    known = [
        trial
        for trial in study.trials
        if trial.state == "complete" and trial.acceptance_length is not None
    ]
    real = [trial for trial in known if not trial.is_synthetic]
    return max(real or known, key=lambda trial: trial.vs_baseline or 0.0, default=None)


def _published(trial: TrialRecord, curve: Curve | None) -> Published | None:
    if curve is None:
        return None
    depth = flag_number(trial, DEPTH) or float(len(curve.positions))
    return compare_published(trial.requested_args.flags, curve.length, depth)


def _width(study: StoredStudy, trial: TrialRecord) -> int:
    """Alternatives per position; 0 where the engine drafts chains only."""
    has_trees = study.document.get("fields", {}).get("engine.kind", TREES) == TREES
    return round(flag_number(trial, WIDTH) or has_trees)


def _with_levers(study: StoredStudy, trial: TrialRecord, found: Explanation) -> Explanation:
    known = counted(study, is_synthetic=trial.is_synthetic)
    alike = [known[t.number] for t in study.trials if t.number in known and shares_clock(t, trial)]
    clock = clock_of(alike)
    steps = known.get(trial.number)
    is_alone = concurrency_of(study.load or "c1") == 1
    cycle = find_cycle(trial, steps, clock, is_alone=is_alone)
    flags = (found.flags,) if found.flags else ()
    if steps is None and cycle is not None:
        steps = assumed_steps(trial, cycle.seconds)
    if steps is None or cycle is None or found.curve is None:
        return replace(
            found, cycle=cycle, levers=(*flags, *load_lever(found.crossover, study.load))
        )
    head_share, vocabulary = draft_head(trial)
    ground = Ground(
        steps=steps,
        curve=deepest_curve(study, trial, found.curve),
        cycle=cycle,
        clock=clock,
        depth=round(flag_number(trial, DEPTH) or steps.verified or 1),
        width=_width(study, trial),
        measured_depths=depths_tried(study, trial),
        published=found.published,
        head_share=head_share,
        vocabulary=vocabulary,
        ranks=round(flag_number(trial, RANKS) or 1),
        verify_saving=nccl_saving(study.trials, trial, known),
    )
    levers = (*find_levers(ground), *flags, *load_lever(found.crossover, study.load))
    even = break_even(ground, found.versus) if found.versus and ground.steps.passes else None
    return replace(
        found,
        cycle=cycle,
        levers=tuple(sorted(levers, key=lambda one: -one.ratio)),
        break_even=even,
        most=ground.depth + 1.0,
    )
