"""Owns the canonical form of llama-server arguments: one form per server, total on any input.

What a speculative type does not read is dropped, defaults are dropped, aliases and spellings of
numbers and switches are one. What is illegal is kept as it is, for `rules` to name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tuner.args import UNSET, FlagValue, Params, ServerArgs
from tuner.engines.llamacpp import flags as known
from tuner.space import SearchSpace


def with_point(base: ServerArgs, params: Params, space: SearchSpace) -> ServerArgs:
    """Arguments with a point of the space written over them, not yet canonical."""
    changed: dict[str, FlagValue] = {canonical_name(k): v for k, v in base.flags.items()}
    env = dict(base.env)
    for parameter in space.parameters:
        value = params.get(parameter.name)
        if value is None:
            continue
        if parameter.flag is not None:
            name = canonical_name(parameter.flag)
            changed.pop(name, None)
            changed |= {} if value == UNSET else {name: value}
        elif parameter.env is not None:
            env[parameter.env] = None if value == UNSET else _text(value)
    return ServerArgs(changed, env)


def canonical(args: ServerArgs) -> ServerArgs:
    """The canonical form of these arguments; idempotent."""
    values: dict[str, FlagValue] = {}
    for name, value in args.flags.items():
        entry = _entry(canonical_name(name), value)
        for written in entry:  # the last of a switch and its opposite wins, as for the server
            values.pop(_opposite(written), None)
        values |= entry
    types = speculative_types(values.pop("spec-type", ""))
    if types:
        values["spec-type"] = ",".join(types)
    kept = {
        name: value
        for name, value in values.items()
        if name not in known.MANAGED and _applies(name, types) and not _is_default(name, value)
    }
    return ServerArgs({**kept, "metrics": True}, dict(args.env))


def canonical_name(name: str) -> str:
    """A flag's one name: no leading dashes, underscores as dashes, aliases resolved."""
    bare = name.replace("_", "-").lstrip("-")
    return known.ALIASES.get(bare, bare)


def speculative_types(value: Any) -> tuple[str, ...]:
    """The speculative types a `spec-type` value names, in the engine's order; () for none."""
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    named = {str(part).strip() for part in parts} - {"", "none", "None", "False"}
    order = {method: index for index, method in enumerate(known.METHODS)}
    return tuple(sorted(named, key=lambda name: (order.get(name, len(order)), name)))


def _entry(name: str, value: Any) -> dict[str, FlagValue]:
    """The canonical flag or flags for one written flag; {} when it says nothing."""
    if value is None:
        return {}
    positive = name.removeprefix("no-")
    if positive in known.TOGGLES and isinstance(value, bool):
        is_on = value if name == positive else not value
        return {positive: True} if is_on else {f"no-{positive}": True}
    if name in known.ON_OFF and isinstance(value, bool):
        return {name: "on" if value else "off"}
    if value is False:
        return {}
    return {name: _value(name, value)}


def _opposite(name: str) -> str:
    return name.removeprefix("no-") if name.startswith("no-") else f"no-{name}"


def _value(name: str, value: Any) -> FlagValue:
    if isinstance(value, bool):
        return value
    if name == "spec-synth-rates":
        return _rates(value)
    if isinstance(value, list | tuple):
        value = _text(value)
    if name in known.INTEGERS:
        return _integer(value)
    return _number(value) if name in known.NUMBERS else _text(value)


def _integer(value: Any) -> FlagValue:
    try:
        number = float(value)
        return int(value) if isinstance(value, int | str) else _whole(number, value)
    except (TypeError, ValueError, OverflowError):
        return _text(value)


def _whole(number: float, value: Any) -> FlagValue:
    return int(number) if number.is_integer() else _text(value)


def _number(value: Any) -> FlagValue:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return _text(value)
    return number + 0.0 if math.isfinite(number) else str(number)


def _rates(value: Any) -> str:
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return ",".join(_text(_number(part)) for part in parts)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(_text(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def _applies(name: str, types: Iterable[str]) -> bool:
    if name not in known.SPECULATIVE and name.removeprefix("no-") not in known.SPECULATIVE:
        return True
    if name in {"spec-type", "spec-default"}:
        return True
    methods = tuple(types)
    if not methods:
        return False
    if name in known.SYNTHETIC or any(m not in known.METHOD_FLAGS for m in methods):
        return True
    return any(name.removeprefix("no-") in known.METHOD_FLAGS[m] for m in methods)


def _is_default(name: str, value: FlagValue) -> bool:
    """A speculative flag at its default, or the toggle that is on anyway."""
    if name == "spec-draft-backend-sampling":
        return True
    default = known.DEFAULTS.get(name)
    return default is not None and value == default and not isinstance(value, bool)


def flag_words(flags: Mapping[str, FlagValue]) -> list[str]:
    """The argument words of canonical flags, in name order with the model first."""
    words: list[str] = []
    for name in sorted(flags, key=lambda n: (n != "model", n)):
        value = flags[name]
        words.append(f"--{name}")
        if value is not True:
            words.append(_text(value))
    return words
