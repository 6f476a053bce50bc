"""Owns reading Optuna's own trials while the database may be locked, full or away for a moment.

Knows nothing of what a trial means.
"""

from __future__ import annotations

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.store.faults import persist


def optuna_trials(study: Study, *states: TrialState) -> list[FrozenTrial]:
    """The trials in these states (all, when none is named), not to be changed.

    Raises:
        StoreError: the database kept failing.
    """
    return persist(
        lambda: study.get_trials(deepcopy=False, states=states or None), study.study_name
    )
