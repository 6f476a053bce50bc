"""Owns vLLM's flags as `ServerArgs` and back: names, dotted JSON paths, argv, `server.yaml`.

Knows neither which values are legal nor what they do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from tuner.args import UNSET, FlagValue, ServerArgs
from tuner.engines.dotenv import parse_env, render_env
from tuner.engines.vllm.speculation import canonical_speculation, read_speculation

SPECULATIVE = "speculative-config"
NEEDS_SPECULATION = frozenset({"per-request-spec-decode-metrics"})
"""Flags that vLLM refuses without speculation, so the baseline must not have them."""

_SHORTHANDS = {
    "spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens",
    "speculative-model": "model", "num-speculative-tokens": "num_speculative_tokens",
    "ngram-prompt-lookup-max": "prompt_lookup_max",
    "ngram-prompt-lookup-min": "prompt_lookup_min",
    "speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "speculative-max-model-len": "max_model_len",
}  # fmt: skip
"""Flags for one field each: those of 0.26 and later, and those that 0.8 had and 0.11 refuses."""

NOT_A_SERVER = frozenset({"host", "port", "config", "model-tag"})
"""Where a server listens is not which server it is; the launch decides it."""

_ALIASES = {
    "tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dp": "data-parallel-size",
    "dcp": "decode-context-parallel-size", "pcp": "prefill-context-parallel-size",
    "ep": "enable-expert-parallel", "q": "quantization", "asc": "api-server-count",
    "sc": SPECULATIVE, "cc": "compilation-config", "ac": "attention-config",
    "O": "optimization-level",
}  # fmt: skip
_STORE_TRUE = frozenset(
    {"headless", "grpc", "disable-log-stats", "aggregate-engine-logging"}
    | {"data-parallel-multi-port-external-lb"}
)
"""The only switches without a `--no-` form (0.32); false means leaving them out."""

_REPEATED = frozenset({"middleware"})
"""Flags that are given once per value; every other list follows its flag once."""

Flags = dict[str, FlagValue]


def flag_name(name: str) -> tuple[str, str]:
    """A flag as written (dashes, underscores, aliases, dotted) as its name and JSON path."""
    root, _, path = name.lstrip("-").partition(".")
    root = _ALIASES.get(root, root.replace("_", "-"))
    if root in _SHORTHANDS:
        return SPECULATIVE, _SHORTHANDS[root]
    return root, path


def merge(flags: Flags, name: str, value: Any) -> None:
    """Put one flag into `flags`; a dotted name goes into its JSON mapping, `unset` takes out."""
    root, path = flag_name(name)
    if not path:
        _put(flags, *_affirmed(root, value))
        return
    mapping = _mapping(flags.get(root), root)
    place = mapping
    keys = path.split(".")
    if root == SPECULATIVE:
        keys = [key.replace("-", "_") for key in keys]
    for key in keys[:-1]:
        child = place.get(key)
        place[key] = dict(child) if isinstance(child, Mapping) else {}
        place = place[key]
    if value == UNSET:
        place.pop(keys[-1], None)
    else:
        place[keys[-1]] = value
    flags[root] = mapping


def canonical(
    flags: Mapping[str, Any], env: Mapping[str, str | None], draft: str | None
) -> ServerArgs:
    """The canonical server of merged flags: speculation resolved, what is off left out."""
    kept: Flags = {}
    for name, value in flags.items():
        if name in NOT_A_SERVER or value is None or (name in _STORE_TRUE and value is False):
            continue
        kept[name] = value
    spec = read_speculation(kept.get(SPECULATIVE, {}))
    if spec is not None:
        resolved = canonical_speculation(
            spec, draft_model=draft, tensor_parallel=whole(flags.get("tensor-parallel-size"), 1)
        )
        kept.pop(SPECULATIVE, None)
        if resolved is not None:
            kept[SPECULATIVE] = resolved
    if SPECULATIVE not in kept:
        kept = {name: value for name, value in kept.items() if name not in NEEDS_SPECULATION}
    return ServerArgs(kept, dict(env))


def speculation(args: ServerArgs) -> dict[str, Any]:
    """The speculative mapping of canonical arguments; {} when there is none."""
    value = args.flags.get(SPECULATIVE)
    return dict(value) if isinstance(value, Mapping) else {}


def whole(value: object, default: int) -> int:
    """An integer flag's value, or `default` when it is absent or no integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def argv(flags: Mapping[str, FlagValue]) -> list[str]:
    """The arguments after `vllm serve`: the model first, then flags by name."""
    items = [str(flags["model"])] if "model" in flags else []
    for name, value in sorted(flags.items()):
        if name != "model":
            items += _items(name, value)
    return items


def render(args: ServerArgs) -> dict[str, str]:
    """`server.yaml` for `vllm serve --config` and `server.env`.

    vLLM's loader writes a mapping as JSON, a list as separate items and true as the bare flag. It
    drops false without a word, because it looks for the `--no-` form on the wrong parser
    (vllm/utils/argparse_utils.py, 0.11 to 0.32); so false is written as `no-NAME: true`.

    Raises:
        ValueError: a list that the loader could not pass on as it is.
    """
    for name, value in args.flags.items():
        if isinstance(value, list) and (name in _REPEATED or any(map(_is_nested, value))):
            raise ValueError(f"server.yaml: {name} cannot be a list in vLLM's file, got {value!r}")
    flags = dict(_negated(name, value) for name, value in args.flags.items())
    return {"server.yaml": _yaml(flags), "server.env": render_env(args.env)}


def parse(files: Mapping[str, str]) -> ServerArgs:
    """Inverse of `render`.

    Raises:
        ValueError: a file that is missing or cannot be read, with its place.
    """
    try:
        flags = yaml.safe_load(files.get("server.yaml", ""))
    except yaml.YAMLError as error:
        raise ValueError(f"server.yaml: must be YAML, got {error}") from error
    if not isinstance(flags, dict) or not all(isinstance(name, str) for name in flags):
        raise ValueError(f"server.yaml: must be a mapping of flags, got {type(flags).__name__}")
    try:
        env = parse_env(files.get("server.env", ""))
    except ValueError as error:
        raise ValueError(f"server.env: {error}") from error
    return ServerArgs(dict(_affirmed(name, value) for name, value in flags.items()), env)


def _negated(name: str, value: FlagValue) -> tuple[str, FlagValue]:
    return (f"no-{name}", True) if value is False else (name, value)


def _affirmed(name: str, value: FlagValue) -> tuple[str, FlagValue]:
    """A switch by its own name; vLLM has no flag whose own name begins with `no-`."""
    is_negative = isinstance(value, bool) and name.startswith("no-")
    return (name[3:], not value) if is_negative else (name, value)


def _yaml(flags: Flags) -> str:
    """Readable YAML; escaped where PyYAML would not read its own line breaks (U+0085) back."""
    readable = yaml.safe_dump(flags, sort_keys=True, allow_unicode=True, width=99)
    if yaml.safe_load(readable) == flags:
        return readable
    return yaml.safe_dump(flags, sort_keys=True, width=99)


def _put(flags: Flags, name: str, value: Any) -> None:
    if value == UNSET or value is None:
        flags.pop(name, None)
    elif name == SPECULATIVE:
        mapping = read_speculation(value)
        flags[name] = value if mapping is None else {**_mapping(flags.get(name), name), **mapping}
    else:
        flags[name] = value


def _mapping(value: object, name: str) -> dict[str, Any]:
    """The mapping a JSON flag holds so far; text that is no JSON object is replaced."""
    if name == SPECULATIVE or isinstance(value, str):
        return dict(read_speculation(value) or {}) if name == SPECULATIVE else _json_object(value)
    return dict(value) if isinstance(value, Mapping) else {}


def _json_object(value: object) -> dict[str, Any]:
    try:
        found = json.loads(str(value))
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _items(name: str, value: FlagValue) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, dict):
        return [f"--{name}", json.dumps(value)]
    if isinstance(value, list) and name in _REPEATED:
        return [item for one in value for item in (f"--{name}", str(one))]
    if isinstance(value, list):
        return [f"--{name}", *(_item(one) for one in value)] if value else []
    return [f"--{name}", str(value)] if not str(value).startswith("-") else [f"--{name}={value}"]


def _item(value: Any) -> str:
    return json.dumps(value) if _is_nested(value) else str(value)


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)
