"""Owns `server.yaml` for llama.cpp, which has no configuration file of its own.

The form: a mapping `flags` of llama-server's hyphenated names; `true` is a bare flag, any other
value follows its flag. `launch.sh` holds the same flags as an argument vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from tuner.args import FlagValue, ServerArgs
from tuner.engines.dotenv import parse_env, render_env

CONFIG, ENV = "server.yaml", "server.env"
_COMMENT = """\
# Flags of llama-server: `name: value` is --name value, `name: true` is a bare --name.
# llama-server reads no such file; launch.sh passes these flags on its command line.
"""


def render_config(args: ServerArgs) -> dict[str, str]:
    """Both files of a server."""
    # PyYAML 6 does not read back every character that it writes unescaped (U+0085).
    body = yaml.safe_dump(
        {"flags": dict(args.flags)}, sort_keys=True, allow_unicode=False, width=1_000_000
    )
    return {CONFIG: _COMMENT + body, ENV: render_env(args.env)}


def parse_config(files: Mapping[str, str]) -> ServerArgs:
    """Inverse of `render_config`.

    Raises:
        ValueError: a file is missing or not of this form, with the place.
    """
    if CONFIG not in files:
        raise ValueError(f"{CONFIG}: must be there, got {', '.join(sorted(files)) or 'nothing'}")
    try:
        data = yaml.safe_load(files[CONFIG])
    except yaml.YAMLError as error:
        raise ValueError(f"{CONFIG}: must be YAML, got {error}") from error
    try:
        env = parse_env(files.get(ENV, ""))
    except ValueError as error:
        raise ValueError(f"{ENV}: {error}") from error
    return ServerArgs(_flags(data), env)


def _flags(data: Any) -> dict[str, FlagValue]:
    flags = data.get("flags") if isinstance(data, dict) else None
    if not isinstance(flags, dict) or len(data) != 1:
        raise ValueError(f"{CONFIG}: must hold one mapping named flags, got {str(data)[:80]!r}")
    for name, value in flags.items():
        if not isinstance(name, str):
            raise ValueError(f"{CONFIG}: flags: names must be text, got {name!r}")
        if not isinstance(value, bool | int | float | str | list | dict):
            raise ValueError(f"{CONFIG}: flags.{name}: must be a value, got {value!r}")
    return dict(flags)
