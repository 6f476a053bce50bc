"""Owns `tuner init --from "…"`: a running server's command line becomes a starter study.

Its speculation, if it has any, becomes the start point of the search; the rest stays fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.cli.command_line import DRAFT_FLAGS, EXAMPLE, MODEL_FLAGS, read_command
from tuner.cli.dimensions import Dimension, search_parameters
from tuner.cli.starter import Starter
from tuner.errors import UsageError


def starter_from(text: str) -> Starter:
    """A starter study whose fixed arguments are those of a running server's command line.

    Its speculation, if it has any, becomes a start point; raises UsageError as `read_command`.
    """
    found = read_command(text)
    flags = dict(found.flags)
    model = str(flags.pop(MODEL_FLAGS[found.engine], ""))
    draft = str(flags.pop(DRAFT_FLAGS.get(found.engine, ""), ""))
    if not model:
        raise UsageError(f"--from: must name the model, got {text!r}.", EXAMPLE)
    plan = {"sglang": _plan_sglang, "vllm": _plan_vllm, "llamacpp": _plan_llamacpp}
    base = Starter("", found.engine, model, draft, flags, found.env, found.executable)
    notes = tuple(f"Left out: --{name}; the tuner sets or needs none." for name in found.dropped)
    return replace(plan[found.engine](base), notes=notes)


def _plan_sglang(base: Starter) -> Starter:
    args = dict(base.args)
    method = str(args.get("speculative-algorithm", "EAGLE3" if base.draft else "NGRAM")).upper()
    args["speculative-algorithm"] = method
    dimensions = search_parameters("sglang", method)
    start, dimensions = _take(args, dimensions)
    if start.get("topk") == 1:
        start.pop("draft_tokens", None)  # with topk 1 the draft is steps + 1
    if method == "NGRAM" and start:
        start = {"draft_tokens": 12, "breadth": 10, **start}  # SGLang's defaults
    return replace(base, args=args, parameters=dimensions, start=_points(start))


def _plan_vllm(base: Starter) -> Starter:
    args = dict(base.args)
    given = args.get("speculative-config")
    spec = dict(given) if isinstance(given, Mapping) else {}
    draft = str(spec.pop("model", base.draft))
    method = str(spec.get("method", "eagle3" if draft else "ngram"))
    prefix = "speculative-config."
    flat = {prefix + name: value for name, value in spec.items()}
    start, dimensions = _take(flat, search_parameters("vllm", method))
    fixed = {name.removeprefix(prefix): value for name, value in flat.items()}
    args["speculative-config"] = {"method": method, **fixed}
    start = start if len(start) == len(dimensions) else {}
    return replace(base, draft=draft, args=args, parameters=dimensions, start=_points(start))


def _plan_llamacpp(base: Starter) -> Starter:
    args = dict(base.args)
    method = str(args.get("spec-type", "draft-simple" if base.draft else ""))
    dimensions = search_parameters("llamacpp", method)
    if "draft" in method:
        args["spec-type"] = method
        start, dimensions = _take(args, dimensions)
        complete = {"depth": 3, "p_min": 0.0, **start}
        return replace(base, args=args, parameters=dimensions, start=_points(complete))
    start, dimensions = _take(args, dimensions)
    kind = {"ngram-simple": "simple", "ngram-map-k": "map"}.get(method)
    defaults = {f"{kind}_n": 12, f"{kind}_m": 48} if kind else {}
    mine = {k: v for k, v in start.items() if k == "method" or (kind and k.startswith(kind))}
    complete = {**defaults, **mine} if "method" in mine else {}
    return replace(base, args=args, parameters=dimensions, start=_points(complete))


def _take(
    args: dict[str, Any], dimensions: Sequence[Dimension]
) -> tuple[dict[str, Any], tuple[Dimension, ...]]:
    """The present values of searched flags, moved out of the fixed ones and into the search."""
    start, widened = {}, []
    for dimension in dimensions:
        value = args.pop(dimension.flag, None)
        if value is not None and dimension.admits(value):
            start[dimension.name] = value
            widened.append(dimension.including(value))
        else:
            widened.append(dimension)
    return start, tuple(widened)


def _points(start: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return (start,) if start else ()
