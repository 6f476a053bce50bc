"""Owns stopping a hopeless trial early: what its blocks must show, and the decision as stored.

Blocks are compared with the same blocks of a reference launch, on log ratios: the best trial so
far, or the baseline while nothing beats it; what the machine drifted since is taken out. Knows no
server and asks Optuna nothing while a server is being measured: Optuna's own pruners see a shadow
study made of stored records.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, MedianPruner, WilcoxonPruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.config.study import SearchConfig
from tuner.measure.noise import launch_noise, pair_margin
from tuner.measure.statistics import log_ratios, paired_bound
from tuner.search.sampling import require_packages
from tuner.store.record import PruneDecision, TrialRecord

LEAST_MARGIN = 0.01
"""A server that may be within 1 % of the reference is measured to the end, whatever the noise."""

ALPHA = 0.05
"""Risk of stopping a server that is in truth as good as its reference, over all looks."""


class Known(Protocol):
    """What is known when a block has been measured; the search's History is one."""

    @property
    def baselines(self) -> list[TrialRecord]:
        """Every measured launch of the baseline."""
        ...

    def ranked(self) -> list[TrialRecord]:
        """Complete, feasible trials, best first."""
        ...

    def shift(self, record: TrialRecord | None = None) -> float:
        """Log units by which the machine stands above its usual level at a trial's launch, or
        now."""
        ...


Judge: TypeAlias = Callable[[Sequence[float], Known], PruneDecision | None]
"""Given the objective per block so far, the decision to stop, or None to go on."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What is compared: the objective's metric, load label and direction; blocks of a trial."""

    metric: str
    load: str
    maximize: bool
    blocks: int

    @property
    def direction(self) -> str:
        """Optuna's word."""
        return "maximize" if self.maximize else "minimize"

    def series(self, record: TrialRecord) -> tuple[float, ...]:
        """The objective per block of a stored trial; () when it has none."""
        for point in record.load_points:
            if point.load == self.load:
                return tuple(point.per_block.get(self.metric, ()))
        return ()


def make_judge(config: SearchConfig, judged: Judged) -> Judge:
    """The judge that `search.pruner` names.

    Raises:
        UsageError: it needs a package that is not installed.
    """
    if config.pruner == "paired":
        return PairedPruner(judged)
    if config.pruner == "wilcoxon":
        require_packages("search.pruner wilcoxon", "scipy")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return OptunaPruner(judged, WilcoxonPruner(p_threshold=0.05, n_startup_steps=4))
    if config.pruner == "median":
        median = MedianPruner(n_startup_trials=config.startup_trials, n_warmup_steps=1)
        return OptunaPruner(judged, median, running=True)
    return never_prune


def never_prune(values: Sequence[float], known: Known) -> PruneDecision | None:
    """The judge that lets every trial finish."""
    return None


@dataclass(frozen=True, slots=True)
class Reference:
    """The launch a trial is held against: its number and the objective per block."""

    number: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PairedPruner:
    """Stops a trial that is surely worse than its reference by more than launches vary.

    The bound holds at every look, so that looking after each block costs nothing; the margin is
    what two launches of one server may differ by (risk 0.5 %, from the baseline's repeats and
    what hosts usually vary), at least 1 %.
    """

    judged: Judged
    alpha: float = ALPHA

    def __call__(self, values: Sequence[float], known: Known) -> PruneDecision | None:
        """The decision after the blocks so far."""
        reference = reference_of(self.judged, known)
        if reference is None:
            return None
        return self.judge(values, reference, self.margin(known))

    def margin(self, known: Known) -> float:
        """Log units by which one launch may differ from another of the same server."""
        launches = [series for r in known.baselines if (series := self.judged.series(r))]
        return pair_margin(launch_noise(launches), LEAST_MARGIN)

    def judge(
        self, values: Sequence[float], reference: Reference, margin: float
    ) -> PruneDecision | None:
        """Stop when even the upper bound of the ratio, widened by the margin, is below 1."""
        if len(values) >= self.judged.blocks:
            return None  # nothing is left to save
        ratios = log_ratios(values, reference.values, self.judged.direction)
        if len(ratios) < 2:
            return None
        bound = paired_bound(ratios, margin=margin, alpha=self.alpha)
        if not bound.upper < 1.0:
            return None
        return PruneDecision(
            after_block=len(values),
            blocks=self.judged.blocks,
            ratio=bound.ratio,
            upper=bound.upper,
            margin=math.expm1(margin),
            reference=reference.number,
        )


def reference_of(judged: Judged, known: Known) -> Reference | None:
    """The best trial so far, or the baseline while nothing beats it; None before any."""
    baseline = pooled_baseline(judged, known)
    ranked = [record for record in known.ranked() if judged.series(record)]
    if ranked and (baseline is None or (ranked[0].vs_baseline or 0.0) > 1.0):
        return Reference(ranked[0].number, as_now(judged, known, ranked[0]))
    return baseline


def as_now(judged: Judged, known: Known, record: TrialRecord) -> tuple[float, ...]:
    """A stored trial's blocks as they would be measured now, where the machine drifts."""
    factor = math.exp(known.shift() - known.shift(record))
    return tuple(value * factor for value in judged.series(record))


def pooled_baseline(judged: Judged, known: Known) -> Reference | None:
    """The baseline's typical value of each block, over all its launches, as it would be now."""
    launches = [series for r in known.baselines if (series := judged.series(r))]
    if not launches:
        return None
    width, factor = min(len(series) for series in launches), math.exp(known.shift())
    typical = tuple(
        factor * float(np.median([s[block] for s in launches])) for block in range(width)
    )
    return Reference(known.baselines[0].number, typical)


@dataclass(frozen=True, slots=True)
class OptunaPruner:
    """One of Optuna's pruners, shown log ratios to the baseline by block (above 0 is better).

    `running` reports the mean so far instead of the block's own value.
    """

    judged: Judged
    pruner: BasePruner
    running: bool = False

    def __call__(self, values: Sequence[float], known: Known) -> PruneDecision | None:
        """The decision after the blocks so far."""
        baseline = pooled_baseline(self.judged, known)
        if baseline is None or len(values) >= self.judged.blocks:
            return None
        ratios = self._ratios(values, baseline)
        if not ratios:
            return None
        study = self._shadow(known, baseline)
        trial = create_trial(
            state=TrialState.RUNNING, intermediate_values=dict(enumerate(self._shown(ratios)))
        )
        trial.number = len(study.trials)
        if not self.pruner.prune(study, trial):
            return None
        return self._decision(values, known, baseline)

    def _ratios(self, values: Sequence[float], baseline: Reference) -> tuple[float, ...]:
        return log_ratios(values, baseline.values, self.judged.direction)

    def _shown(self, ratios: Sequence[float]) -> list[float]:
        if not self.running:
            return list(ratios)
        return [float(np.mean(ratios[: end + 1])) for end in range(len(ratios))]

    def _shadow(self, known: Known, baseline: Reference) -> Study:
        study = optuna.create_study(direction="maximize", pruner=self.pruner)
        stored = (as_now(self.judged, known, record) for record in known.ranked())
        study.add_trials([self._finished(values, baseline) for values in stored])
        return study

    def _finished(self, values: Sequence[float], baseline: Reference) -> FrozenTrial:
        ratios = self._ratios(values, baseline)
        return create_trial(
            value=float(np.mean(ratios)) if ratios else 0.0,
            intermediate_values=dict(enumerate(self._shown(ratios))),
        )

    def _decision(
        self, values: Sequence[float], known: Known, baseline: Reference
    ) -> PruneDecision:
        reference = reference_of(self.judged, known) or baseline
        ratios = log_ratios(values, reference.values, self.judged.direction)
        return PruneDecision(
            after_block=len(values),
            blocks=self.judged.blocks,
            ratio=math.exp(float(np.mean(ratios))) if ratios else math.nan,
            upper=math.nan,
            margin=0.0,
            reference=reference.number,
        )
