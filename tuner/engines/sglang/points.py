"""Owns how a point of a space is put into flags and variables, word for word."""

from __future__ import annotations

import json
from typing import Any

from tuner.args import UNSET, FlagValue, Params, ParamValue, ServerArgs
from tuner.engines.sglang import flags as F
from tuner.space import SearchSpace


def with_point(args: ServerArgs, params: Params, space: SearchSpace) -> ServerArgs:
    """The arguments with every parameter of a point set; not canonical yet."""
    flags, env = dict(args.flags), dict(args.env)
    for name, value in params.items():
        parameter = space.parameter(name)
        if parameter.env is not None:
            env[parameter.env] = None if value == UNSET else _env_text(value)
        elif parameter.flag is not None:
            _place(flags, parameter.flag, value)
    return ServerArgs(flags, env)


def _env_text(value: ParamValue) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


def _place(flags: dict[str, FlagValue], path: str, value: ParamValue) -> None:
    """Set a flag, or a key inside its JSON value where the path has dots; `unset` removes."""
    name, *keys = path.split(".")
    name = F.spelled(name)
    if not keys:
        if value == UNSET:
            flags.pop(name, None)
        else:
            flags[name] = value
        return
    nested = _nested(flags.get(name))
    inner = nested
    for key in keys[:-1]:
        inner[key] = dict(inner.get(key) or {})
        inner = inner[key]
    if value == UNSET:
        inner.pop(keys[-1], None)
    else:
        inner[keys[-1]] = value
    flags[name] = nested
    if not nested:
        del flags[name]


def _nested(value: FlagValue | None) -> dict[str, Any]:
    if isinstance(value, str):
        value = json.loads(value)
    return dict(value) if isinstance(value, dict) else {}
