"""Owns what only vLLM itself can tell; run as a script by the interpreter that has vLLM.

Must import nothing but vLLM and the standard library, and must run on Python 3.10. Prints one
line of JSON behind a mark, because importing vLLM prints too.

    python inside.py facts
    python inside.py resolve '["MODEL", "--dtype", "auto"]' '["--speculative-config", "{...}"]' …
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import io
import json
import sys
import typing
from collections.abc import Iterator
from typing import Any

MARK = "vllm-facts:"
_SCHEDULER = (
    "async_scheduling",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_num_scheduled_tokens",
)
_HIDDEN = ("target_", "draft_model_config", "draft_parallel_config")


def main(arguments: list[str]) -> None:
    """Answer `facts` or `resolve COMMON ONE…` on standard output."""
    # The folder of this file and the current one must not shadow vLLM's own imports.
    sys.path[:] = [entry for entry in sys.path[1:] if entry]
    if arguments[:1] == ["resolve"]:
        common, *rest = (json.loads(argument) for argument in arguments[1:])
        answer: object = [resolve([*common, *one]) for one in rest]
    else:
        answer = facts()
    sys.stdout.write(f"{MARK}{json.dumps(answer, default=str)}\n")


def facts() -> dict[str, Any]:
    """Version, flags, speculative methods, fields and their plain defaults."""
    config = importlib.import_module("vllm.config.speculative")
    fields = dataclasses.fields(config.SpeculativeConfig)
    return {
        "version": importlib.metadata.version("vllm"),
        "methods": sorted(set(_literals(config.SpeculativeMethod))),
        "fields": [field.name for field in fields],
        "defaults": {f.name: f.default for f in fields if _is_plain(f.default)},
        "flags": sorted(o[2:] for o in _parser()._option_string_actions if o.startswith("--")),
        "has_arctic_inference": importlib.util.find_spec("arctic_inference") is not None,
    }


def resolve(argv: list[str]) -> dict[str, Any]:
    """What vLLM makes of one command line: the values it would use, or its error."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            args = _parser().parse_args(argv)
    except SystemExit:
        return {"error": errors.getvalue().strip().splitlines()[-1], "kind": "SystemExit"}
    args.model = getattr(args, "model_tag", None) or args.model
    engine_args = _first("vllm.engine.arg_utils:AsyncEngineArgs")
    try:
        config = engine_args.from_cli_args(args).create_engine_config()
    except BaseException as error:  # noqa: BLE001  whatever vLLM raises is the answer
        return {"error": str(error), "kind": type(error).__name__}
    return {"effective": dict(_effective(config))}


def _effective(config: Any) -> Iterator[tuple[str, Any]]:
    for name in _SCHEDULER:
        yield from _named(name, getattr(config.scheduler_config, name, None))
    yield from _named("enable_prefix_caching", config.cache_config.enable_prefix_caching)
    yield from _named("enforce_eager", config.model_config.enforce_eager)
    yield from _named("max_model_len", config.model_config.max_model_len)
    mode = getattr(config.compilation_config, "cudagraph_mode", None)
    yield from _named("cudagraph_mode", getattr(mode, "name", mode))
    spec = config.speculative_config
    for field in dataclasses.fields(spec) if spec is not None else ():
        value = getattr(spec, field.name)
        is_default = value is None or (_is_plain(value) and value == field.default)
        if not is_default and not field.name.startswith(_HIDDEN):
            yield f"speculative-config.{field.name}", _plain(value)


def _named(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if value is not None:
        yield name.replace("_", "-"), _plain(value)


def _plain(value: Any) -> Any:
    return value if _is_plain(value) or isinstance(value, list) else str(value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)


def _literals(kind: Any) -> Iterator[str]:
    for item in typing.get_args(kind):
        if isinstance(item, str):
            yield item
        else:
            yield from _literals(item)


def _parser() -> Any:
    make = _first(
        "vllm.entrypoints.launchers.cli_args:make_arg_parser",
        "vllm.entrypoints.openai.cli_args:make_arg_parser",
    )
    parser = _first(
        "vllm.utils.argparse_utils:FlexibleArgumentParser", "vllm.utils:FlexibleArgumentParser"
    )
    return make(parser(prog="vllm serve"))


def _first(*places: str) -> Any:
    """The first of `module:name` that this version has; modules moved between versions."""
    for place in places:
        module, _, name = place.partition(":")
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), name)
    raise ImportError(f"none of {', '.join(places)} exists in this vLLM")


if __name__ == "__main__":
    main(sys.argv[1:])
