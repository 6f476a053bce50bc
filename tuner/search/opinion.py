"""Owns what the search's model says to the confirmation: before it, and of its launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tuner.measure.noise import LaunchNoise
from tuner.search.model_sampler import ModelSuggester
from tuner.search.objective import Objective
from tuner.search.recommend import UNKNOWN_NOISE
from tuner.search.sampling import Suggester
from tuner.search.weighing import Expected, told_to_model
from tuner.store.record import ConfirmationLaunch, TrialRecord

SLOWED = 0.25
"""Above this skewness of blocks disturbance only ever slows: a server is then its fastest pass."""

Belief: TypeAlias = Callable[[Sequence[ConfirmationLaunch]], Mapping[str, Expected]]
"""What a model expects of each server, by digest, once it knows the confirmation too."""


def nothing_known(launches: Sequence[ConfirmationLaunch]) -> Mapping[str, Expected]:
    """The `Belief` where there is no model."""
    return {}


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the search's model says: of each server it launched, and of how launches scatter;
    `after` says what it makes of the launches of the confirmation."""

    expected: Mapping[str, Expected] = field(default_factory=dict)
    noise: LaunchNoise = UNKNOWN_NOISE
    after: Belief = nothing_known


NO_OPINION = Opinion()


def opinion(suggester: Suggester, records: Sequence[TrialRecord], objective: Objective) -> Opinion:
    """What a suggester says after a search."""
    if not isinstance(suggester, ModelSuggester):
        return NO_OPINION
    is_slowed = suggester.believe(records).skewness > SLOWED

    def after(launches: Sequence[ConfirmationLaunch]) -> Mapping[str, Expected]:
        told = told_to_model(launches, objective, is_slowed=is_slowed)
        noise = told.noise or suggester.believe(records).noise
        return suggester.beliefs([*records, *told.records], noise)

    return Opinion(suggester.beliefs(records), suggester.noise(records), after)
