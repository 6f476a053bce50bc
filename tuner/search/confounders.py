"""Owns what differs between a trial and its baseline besides drafting: a comparison that is not
only of speculation says so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.engines.base import Drift

_LONGEST = 60


def confounders(
    names: Sequence[str], baseline: Mapping[str, Any], trial: Mapping[str, Any]
) -> list[Drift]:
    """Effective values, among `names`, in which a trial's server is not its baseline's."""
    return [
        Drift(name, _word(baseline[name]), _word(trial[name]), True, _text(name, baseline, trial))
        for name in names
        if name in baseline and name in trial and baseline[name] != trial[name]
    ]


def _text(name: str, baseline: Mapping[str, Any], trial: Mapping[str, Any]) -> str:
    return (
        f"{name} is {_word(baseline[name])} in the baseline and {_word(trial[name])} here: "
        f"more than speculation differs; fix it in engine.args"
    )


def _word(value: object) -> str:
    if value is None:
        return "unset"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
