"""Owns behaviours that depend on how a server was launched: its flags, its environment, chance.

One study has one behaviour for all its servers; overrides make some of them fail or differ:

    {"overrides": [{"when": {"spec-steps": [1]}, "then": {"exit_code": 1, "exit_log": "shape"}},
                   {"when": {"speculative": true}, "then": {"info": {"max-running-requests": 48}}},
                   {"when": {"env:NCCL_PROTO": "LL128"}, "then": {"garbage": true}},
                   {"when": {"chance": 0.1}, "then": {"die_at_request": 5}}]}

Every condition of `when` must hold; later overrides win. A list holds several accepted values.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tuner.server.fake.behaviour import Behaviour


def resolve(
    behaviour: Behaviour, flags: Mapping[str, Any], environ: Mapping[str, str]
) -> Behaviour:
    """The behaviour of one launch.

    Args:
        behaviour: what all servers have in common, with overrides.
        flags: effective flags of this launch.
        environ: its environment.

    Raises:
        ValueError: an override of another form, or with an unknown key.
    """
    values: dict[str, Any] = {}
    chance = random.Random(behaviour.launch_seed)
    for override in behaviour.overrides:
        if not isinstance(override, dict) or set(override) != {"when", "then"}:
            raise ValueError(f"overrides: each must hold `when` and `then`, got {override!r}.")
        when = override["when"]
        if all(_holds(name, when[name], flags, environ, chance) for name in when):
            values |= override["then"]
    return behaviour.changed(values) if values else behaviour


def _holds(
    name: str,
    wanted: Any,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    chance: random.Random,
) -> bool:
    if name == "chance":
        return chance.random() < float(wanted)
    if name == "speculative":
        return bool(flags["spec-steps"]) is wanted
    if name.startswith("env:"):
        return str(wanted) in environ.get(name[4:], "")
    if name not in flags:
        raise ValueError(f"overrides: `when` must name one of {sorted(flags)}, got {name}.")
    return flags[name] in (wanted if isinstance(wanted, list) else [wanted])
