"""Owns how Optuna sees a choice: fixed distributions, and a sampler over the legal servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.args import Params
from tuner.search.sampling import Ground
from tuner.space import Parameter, SearchSpace
from tuner.store.optuna_trials import optuna_trials


def distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    """The fixed distribution of every parameter, by name."""
    return {parameter.name: distribution(parameter) for parameter in space.parameters}


def distribution(parameter: Parameter) -> BaseDistribution:
    """How Optuna and its dashboard see one parameter; the same in every trial of a study."""
    values = parameter.values
    if parameter.kind == "int":
        return _int_distribution([int(v) for v in values], parameter.log is not None)
    if parameter.kind == "float":
        low, high = float(values[0]), float(values[-1])
        return FloatDistribution(low, high, log=parameter.log is not None and low > 0)
    return CategoricalDistribution(values)


def _int_distribution(values: list[int], log: bool) -> IntDistribution:
    low, high = values[0], values[-1]
    if log and low > 0:
        return IntDistribution(low, high, log=True)
    steps = {b - a for a, b in pairwise(values)}
    return IntDistribution(low, high, step=steps.pop() if len(steps) == 1 else 1)


def suggest(trial: Trial, name: str, dist: BaseDistribution) -> Any:
    """Let a trial take its value of one parameter."""
    if isinstance(dist, IntDistribution):
        return trial.suggest_int(name, dist.low, dist.high, step=dist.step, log=dist.log)
    if isinstance(dist, FloatDistribution):
        return trial.suggest_float(name, dist.low, dist.high, log=dist.log)
    assert isinstance(dist, CategoricalDistribution)
    return trial.suggest_categorical(name, dist.choices)


class LatticeSampler(BaseSampler):
    """Optuna's sampler over the distinct legal servers of a space.

    `offer` fixes the point of the next new trial; without an offer (plain Optuna use) a point
    that no trial has is drawn. A parameter that does not exist at the point is not suggested.
    """

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._distributions = distributions(ground.space)
        self._offered: Params | None = None
        self._random = RandomSampler(seed=ground.config.seed)

    def offer(self, params: Params) -> None:
        """Make this the point of the next new trial."""
        self._offered = params

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Distributions of the parameters that exist at the chosen point."""
        if self._offered is None:
            self._offered = self._free_point(study)
        return {name: self._distributions[name] for name in self._offered}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The chosen point."""
        offered, self._offered = self._offered or {}, None
        return {name: offered[name] for name in search_space}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """A random value, for a parameter that is not of the space."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Used by Optuna when a study is shared between threads."""
        self._random.reseed_rng()

    def _free_point(self, study: Study) -> Params:
        taken = [trial.params for trial in optuna_trials(study)]
        servers = self._ground.survey.servers
        free = [params for params, _ in servers if dict(params) not in taken]
        choices = free or [params for params, _ in servers] or [{}]
        return choices[(self._ground.config.seed + len(taken)) % len(choices)]


def busy_digests(study: Study, names: Callable[[], Mapping[str, str]]) -> set[str]:
    """Digests of trials that run or wait; `names` gives those of points that do not say theirs.

    Args:
        study: the Optuna study.
        names: digest by `point_key` of every server; asked only when it is needed.
    """
    states = (TrialState.RUNNING, TrialState.WAITING)
    found = set()
    for trial in optuna_trials(study, *states):
        point = trial.params or trial.system_attrs.get("fixed_params", {})
        digest = trial.user_attrs.get("digest")
        if digest is None and point:
            digest = names().get(point_key(point))
        found.add(digest)
    return {digest for digest in found if digest}


def point_key(params: Params) -> str:
    """A point as text, the same whatever the order of its parameters."""
    return repr(sorted(params.items()))
