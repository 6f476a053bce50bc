"""Owns what vLLM's start-up log says about the server that really runs, and how it differs from
what was asked for. Reads text; knows no process.

The log is read instead of `/server_info`, which exists only in development mode
(VLLM_SERVER_DEV_MODE), a mode no measured server should run in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.args import ServerArgs
from tuner.engines.base import Drift
from tuner.engines.vllm.arguments import SPECULATIVE, speculation
from tuner.engines.vllm.speculation import KEEPS_ASYNC, draft_tokens

PREFIX = re.compile(
    r"^(?:\((?P<process>[\w:.\- ]+?) ?pid=\d+(?:, ip=[\d.]+)?\) )*"
    r"(?:(?P<level>[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[^\]]*\] )?)?"
)
"""What vLLM puts before a message: processes, level, time, file and line."""

_ENGINE_LINE = re.compile(r"Initializing a V1 LLM engine \(v(?P<version>[^)]*)\) with config: ")
_SPEC = re.compile(
    r"speculative_config=SpeculativeConfig\(method='(?P<method>[^']*)', "
    r"model=(?P<model>None|'[^']*'), num_spec_tokens=(?P<tokens>\d+)\)"
)
_SIMPLE = {
    "dtype": "dtype", "max_seq_len": "max-model-len",
    "tensor_parallel_size": "tensor-parallel-size",
    "pipeline_parallel_size": "pipeline-parallel-size",
    "data_parallel_size": "data-parallel-size", "enforce_eager": "enforce-eager",
    "disable_custom_all_reduce": "disable-custom-all-reduce", "quantization": "quantization",
    "kv_cache_dtype": "kv-cache-dtype", "seed": "seed",
    "enable_prefix_caching": "enable-prefix-caching",
    "enable_chunked_prefill": "enable-chunked-prefill",
}  # fmt: skip
_CUDAGRAPH = re.compile(r"'cudagraph_mode': <CUDAGraphMode\.(\w+)")
_CAPTURED = re.compile(r"'max_(?:cudagraph_)?capture_size': (\d+)")
_NOT_IDENTITY = frozenset({"host", "port", "model_tag", "config"})
_NOTES = {
    "async-scheduling": (
        (re.compile(r"Async(?:hronous)? scheduling (?:is enabled|will be enabled)"), True),
        (re.compile(r"Async scheduling (?:not supported with|is not compatible with|will be "
                    r"disabled|is disabled)"), False),
        (re.compile(r"Asynchronous scheduling is disabled"), False),
    ),
    "schedule-dropped": (
        (re.compile(r"Disabling num_speculative_tokens_per_batch_size"), True),
    ),
}  # fmt: skip
_BUDGET = re.compile(r"max_num_scheduled_tokens is set to (\d+) based on")
_GRAPHS = re.compile(r"Overriding cudagraph_mode from (\w+) to (\w+)")
_ALL_REDUCE = re.compile(
    r"Using \[([^\]]*)\] all-reduce backends \(in dispatch order\) for group '(?:tp|<unnamed>)"
)
_NON_DEFAULT = re.compile(r"non-default args: (\{.*\})\s*$")


def read_startup(log: str) -> dict[str, Any]:
    """Effective values by flag name, from a start-up log; {} when nothing is readable.

    Only what identifies the server is kept: no ports, times, addresses or free memory.
    """
    found: dict[str, Any] = {}
    for line in log.splitlines():
        message = PREFIX.sub("", line)
        for name, value in _facts_of(message):
            found.setdefault(name, value)
    return dict(sorted(found.items()))


def drifts(args: ServerArgs, effective: Mapping[str, Any]) -> list[Drift]:
    """Where the running server is not what was asked for, or where speculation changed more."""
    if not effective:
        return []
    return [
        *_speculation_drifts(args, effective),
        *_flag_drifts(args, effective),
        *_side_effects(args, effective),
    ]


def _facts_of(message: str) -> Iterator[tuple[str, Any]]:
    engine = _ENGINE_LINE.search(message)
    if engine:
        yield "version", engine["version"]
        yield from _engine_config(message[engine.end() :])
        return
    given = _NON_DEFAULT.search(message)
    if given:
        yield from _given_args(given[1])
        return
    for name, notes in _NOTES.items():
        yield from ((name, value) for pattern, value in notes if pattern.search(message))
    budget, graphs = _BUDGET.search(message), _GRAPHS.search(message)
    reduce = _ALL_REDUCE.search(message)
    if budget:
        yield "max-num-scheduled-tokens", int(budget[1])
    if graphs:
        yield "cudagraph-mode-override", graphs[2]
    if reduce:
        yield "all-reduce-backends", re.findall(r"'(\w+)'", reduce[1])


def _engine_config(text: str) -> Iterator[tuple[str, Any]]:
    spec = _SPEC.search(text)
    if spec:
        yield f"{SPECULATIVE}.method", spec["method"]
        yield f"{SPECULATIVE}.num_speculative_tokens", int(spec["tokens"])
        if spec["model"] != "None":
            yield f"{SPECULATIVE}.model", spec["model"].strip("'")
    elif "speculative_config=None" in text:
        yield f"{SPECULATIVE}.method", "none"
    for name, flag in _SIMPLE.items():
        match = re.search(rf"(?:^|, ){name}=('[^']*'|[^,\s)]+)", text)
        if match:
            yield flag, _literal(match[1])
    mode, captured = _CUDAGRAPH.search(text), _CAPTURED.search(text)
    if mode:
        yield "cudagraph-mode", mode[1]
    if captured:
        yield "max-cudagraph-capture-size", int(captured[1])


def _given_args(text: str) -> Iterator[tuple[str, Any]]:
    """What vLLM understood of the command line; reprs that are no literals are skipped."""
    try:
        given = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return
    for name, value in given.items() if isinstance(given, dict) else ():
        if name == "speculative_config" and isinstance(value, dict):
            yield from ((f"{SPECULATIVE}.{key}", item) for key, item in value.items())
        elif name not in _NOT_IDENTITY:
            yield str(name).replace("_", "-"), value


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.removeprefix("torch.")


def _speculation_drifts(args: ServerArgs, effective: Mapping[str, Any]) -> Iterator[Drift]:
    spec = speculation(args)
    method = effective.get(f"{SPECULATIVE}.method")
    wanted = str(spec.get("method", "none"))
    if method is not None and method != wanted:
        text = f"vLLM runs {method}, not {wanted}"
        yield Drift(f"{SPECULATIVE}.method", wanted, str(method), False, text)
    tokens = effective.get(f"{SPECULATIVE}.num_speculative_tokens")
    asked = spec.get("num_speculative_tokens")
    if asked is not None and tokens is not None and asked != tokens:
        text = f"vLLM drafts {tokens} tokens, not {asked}"
        yield Drift(f"{SPECULATIVE}.num_speculative_tokens", str(asked), str(tokens), False, text)
    if effective.get("schedule-dropped"):
        text = "vLLM drops the per-batch-size table with data parallelism"
        yield Drift("schedule", "per batch size", "one depth", False, text)


_SAME = {"half": "float16", "float": "float32"}


def _is_other(asked: Any, runs: Any) -> bool:
    """True when two values differ; `auto` and `8k` say nothing that could be compared."""
    if asked is None or asked == "auto" or (isinstance(asked, str) and isinstance(runs, int)):
        return False
    return _SAME.get(str(asked), str(asked)) != str(runs)


def _flag_drifts(args: ServerArgs, effective: Mapping[str, Any]) -> Iterator[Drift]:
    for name in _SIMPLE.values():
        asked = args.flags.get(name)
        if name in effective and _is_other(asked, effective[name]):
            text = f"asked for {name} {asked}, vLLM runs {effective[name]}"
            yield Drift(name, str(asked), str(effective[name]), True, text)


def _side_effects(args: ServerArgs, effective: Mapping[str, Any]) -> Iterator[Drift]:
    """What speculation changes besides drafting, so that baseline and trial differ in more."""
    spec = speculation(args)
    if not spec:
        return
    asked = args.flags.get("async-scheduling")
    if effective.get("async-scheduling") is False and asked is not False:
        without = spec["method"] not in KEEPS_ASYNC
        why = f"{spec['method']} works only without" if without else "vLLM turned off"
        text = f"{why} asynchronous scheduling, which the baseline may have"
        yield Drift("async-scheduling", "default", "off", True, text)
    if "cudagraph-mode-override" in effective:
        mode = str(effective["cudagraph-mode-override"])
        text = f"the per-batch-size table makes vLLM use CUDA graphs of mode {mode}"
        yield Drift("cudagraph-mode", "default", mode, True, text)
    yield from _step_sizes(args, effective)


def _step_sizes(args: ServerArgs, effective: Mapping[str, Any]) -> Iterator[Drift]:
    """Limits that a step of k + 1 tokens per request meets before a step of one token does."""
    budget = args.flags.get("max-num-batched-tokens")
    scheduled = effective.get("max-num-scheduled-tokens")
    if isinstance(budget, int) and isinstance(scheduled, int) and scheduled < budget:
        text = f"drafting takes {budget - scheduled} of {budget} tokens of the step's budget"
        yield Drift("max-num-scheduled-tokens", str(budget), str(scheduled), True, text)
    seqs, tokens = args.flags.get("max-num-seqs"), draft_tokens(speculation(args))
    if not isinstance(seqs, int) or tokens is None:
        return
    step = seqs * (tokens + 1)
    captured = effective.get("max-cudagraph-capture-size")
    if isinstance(captured, int) and seqs <= captured < step:
        text = (
            f"{seqs} requests verify {step} tokens, more than the largest CUDA graph "
            f"({captured}); without speculation they fit"
        )
        yield Drift("max-cudagraph-capture-size", str(step), str(captured), True, text)
    if isinstance(budget, int) and seqs <= budget < step:
        text = f"{seqs} requests verify {step} tokens, more than max-num-batched-tokens {budget}"
        yield Drift("max-num-batched-tokens", str(step), str(budget), True, text)
