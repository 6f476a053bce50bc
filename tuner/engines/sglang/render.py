"""Owns how flags become words: an argument vector, and the `--config` YAML with its companions.

Rules of the YAML merger (srt/utils/server_args_config_parser.py, 0.5.23): keys are hyphenated
option names, a true switch is present and a false one absent, a list is words, a mapping is one
JSON word, null is the text "None" (so never written), strings are quoted where YAML 1.1 would
read something else. What the merger refuses is passed as arguments after `--config`, and noted
in the YAML in a comment so that the file alone gives the server back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import yaml

from tuner.args import FlagValue, ServerArgs
from tuner.engines.dotenv import parse_env, render_env
from tuner.engines.sglang import flags as F

YAML_NAME = "server.yaml"
ENV_NAME = "server.env"
BESIDE = "adaptive.json"
"""A table of depths that lies beside the YAML: only an argument can say where that is."""
_ARGUMENTS = "# further arguments: "


def argv_of(args: ServerArgs) -> list[str]:
    """The flags as arguments of `sglang.launch_server`, sorted by name."""
    words: list[str] = []
    for name, value in sorted(args.flags.items()):
        words += flag_words(name, value)
    return words


def flag_words(name: str, value: FlagValue) -> list[str]:
    """One flag as words; a false switch is none."""
    option = f"--{name}"
    if value is True:
        return [option]
    if value is False:
        return [f"--no-{name}"] if name in F.NEGATABLE else []
    if isinstance(value, list):
        return [option, *(_text(item) for item in value)] if value else []
    text = _text(value)
    return [f"{option}={text}"] if text.startswith("-") else [option, text]


def _text(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def in_yaml(name: str, value: FlagValue) -> bool:
    """True when the `--config` merger can carry a flag with this value."""
    if name in F.NOT_IN_YAML or (name == "speculative-adaptive-config" and value == BESIDE):
        return False
    words = value if isinstance(value, list) else [value]
    return not any(isinstance(word, str) and word.startswith("-") for word in words)


def render_yaml(args: ServerArgs) -> str:
    """The `--config` file; flags it cannot carry are in its last comment line."""
    kept = {k: v for k, v in sorted(args.flags.items()) if v is not False and in_yaml(k, v)}
    text = yaml.safe_dump(kept, sort_keys=True, allow_unicode=True, width=10_000) if kept else ""
    further = further_flags(args)
    note = f"{_ARGUMENTS}{json.dumps(further, sort_keys=True)}\n" if further else ""
    return text + note


def further_flags(args: ServerArgs) -> dict[str, FlagValue]:
    """Flags that must follow `--config` as arguments."""
    return {name: value for name, value in sorted(args.flags.items()) if not in_yaml(name, value)}


def render_files(args: ServerArgs) -> dict[str, str]:
    """`server.yaml` and `server.env` by name."""
    return {YAML_NAME: render_yaml(args), ENV_NAME: render_env(args.env)}


def parse_files(files: Mapping[str, str]) -> ServerArgs:
    """Inverse of `render_files`.

    Raises:
        ValueError: a file is missing, or something in it is unreadable, with its place.
    """
    if YAML_NAME not in files:
        raise ValueError(f"{YAML_NAME}: must exist, got {', '.join(sorted(files)) or 'nothing'}")
    text = files[YAML_NAME]
    flags = parse_yaml(text) | _parse_further(text)
    try:
        env = parse_env(files.get(ENV_NAME, ""))
    except ValueError as error:
        raise ValueError(f"{ENV_NAME}: {error}") from error
    return ServerArgs(flags, env)


def parse_yaml(text: str) -> dict[str, FlagValue]:
    """Flags of a `--config` file, refused where SGLang would refuse or misread them.

    Raises:
        ValueError: it is not such a file, with the key.
    """
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{YAML_NAME}: must be YAML: {error}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ValueError(f"{YAML_NAME}: must be a mapping of flags, got {type(data).__name__}")
    for key, value in data.items():
        _check_entry(key, value)
    return dict(data)


def _check_entry(key: object, value: object) -> None:
    if not isinstance(key, str) or "_" in key or key.startswith("-"):
        raise ValueError(f"{YAML_NAME}: {key}: must be a hyphenated flag name")
    if value is None:
        raise ValueError(f"{YAML_NAME}: {key}: must have a value, got null")
    if key in F.NOT_IN_YAML:
        raise ValueError(f"{YAML_NAME}: {key}: must follow --config as an argument")
    if not isinstance(value, bool | int | float | str | list | dict):
        raise ValueError(f"{YAML_NAME}: {key}: must be plain data, got {type(value).__name__}")


def _parse_further(text: str) -> dict[str, FlagValue]:
    flags: dict[str, FlagValue] = {}
    for line in text.splitlines():
        if line.startswith(_ARGUMENTS):
            try:
                flags |= json.loads(line.removeprefix(_ARGUMENTS))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{YAML_NAME}: {_ARGUMENTS}must be a JSON object") from error
    return flags
