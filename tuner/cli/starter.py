"""Owns the starter study that `tuner init` writes: commented YAML that passes `tuner check`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.cli.dimensions import Dimension, scalar, search_parameters

BUILTIN = "{builtin: mixed}"


@dataclass(frozen=True, slots=True)
class Starter:
    """What a starter study says.

    Args:
        name: the study's name.
        engine: sglang, vllm or llamacpp.
        model, draft: paths or names.
        args: fixed flags.
        env: fixed environment.
        executable: interpreter or binary; "" for the one on PATH.
        parameters: what is searched.
        start: known-good points.
        prompts: the `prompts:` value as YAML.
        concurrency: load of the objective.
        include: search spaces beside the parameters, each with why it is there.
        notes: comments at the head.
    """

    name: str
    engine: str
    model: str
    draft: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    executable: str = ""
    parameters: tuple[Dimension, ...] = ()
    start: tuple[Mapping[str, Any], ...] = ()
    prompts: str = BUILTIN
    concurrency: int = 1
    include: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


SCHEMA = "study.schema.json"
"""Lies beside the study, so that editors complete and check it."""

_TEMPLATE = """\
# yaml-language-server: $schema={schema}
# A study of {engine}: which speculative-decoding settings are fastest for this model, on this
# machine, with these prompts. Validate it with `tuner check {file}`, run it with
# `tuner run {file}`; running it again resumes it.
{notes}name: {name}

engine:
  kind: {kind}
{executable}  model: {model}
{draft}{args}{env}  launch_timeout: 30m         # longest silence of a starting server

space:                        # what is tried; the baseline (speculation off) is always trial 0
{include}  parameters:
{parameters}{start}
workload:
  prompts: {prompts}   # your own traffic is the best measure
  blocks: 6                   # every trial answers the same blocks of prompts ...
  block_size: 8               # ... of this many prompts
  held_out: 48                # prompts the search never sees, for the confirmation
  output_tokens: {{max: 256}}
  temperature: 0
  load: [{{concurrency: {concurrency}}}]    # requests in flight; a launch measures every entry

objective:
  maximize: output_tokens_per_s
  constraints: ["ttft_p95_ms <= 1.10 * baseline", "error_rate == 0"]

search: {{sampler: model, pruner: paired, seed: 7}}
budget: {{launches: 20}}        # server launches for the search; `wall: 6h` limits the time
confirm: {{finalists: 3, rounds: 4}}   # the best are launched again beside the baseline
fidelity: {{compare: greedy_text, tolerance: calibrated}}   # answers must stay the baseline's
"""


def render_study(starter: Starter, file: str) -> str:
    """The study file's text.

    Args:
        starter: what it says.
        file: how commands in its comments name it.
    """
    fields = {
        "engine": _TITLES[starter.engine],
        "file": file,
        "notes": "".join(f"# {line}\n" for line in starter.notes),
        "name": scalar(starter.name),
        "kind": starter.engine,
        "executable": _executable(starter),
        "model": scalar(starter.model),
        "draft": f"  draft_model: {scalar(starter.draft)}\n" if starter.draft else "",
        "args": _args(starter.args),
        "env": f"  env:\n{_mapping(starter.env)}" if starter.env else "",
        "schema": SCHEMA,
        "include": _include(starter.include),
        "parameters": _parameters(starter.parameters),
        "start": _start(starter),
        "prompts": starter.prompts,
        "concurrency": starter.concurrency,
    }
    return _TEMPLATE.format(**fields)


def default_starter(engine: str, model: str, draft: str, tp: int) -> Starter:
    """The usual study of an engine: EAGLE-3 or a draft model where there is a draft, n-gram
    lookup otherwise."""
    base = Starter(name="", engine=engine, model=model or _PLACEHOLDERS[engine], draft=draft)
    if engine == "sglang":
        return _sglang(base, tp)
    return _vllm(base, tp) if engine == "vllm" else _llamacpp(base)


_TITLES = {"sglang": "SGLang", "vllm": "vLLM", "llamacpp": "llama.cpp"}
ENGINES = tuple(_TITLES)
_PLACEHOLDERS = {
    "sglang": "/models/your-model",
    "vllm": "/models/your-model",
    "llamacpp": "/models/your-model.gguf",
}

_ARG_NOTES = {
    "max-running-requests": "# speculation lowers SGLang's default to 48: pin it for all servers",
    "speculative-algorithm": "# EAGLE3, EAGLE, STANDALONE, NGRAM, …; the baseline goes without",
    "speculative-config": "# the method; the draft model and the searched values are added",
    "spec-type": "# the method; the baseline goes without",
    "parallel": "# slots: requests served at once",
}


def _sglang(base: Starter, tp: int) -> Starter:
    method = "EAGLE3" if base.draft else "NGRAM"
    start = {"steps": 3, "topk": 1} if base.draft else {"draft_tokens": 12, "breadth": 10}
    args = {
        "tp-size": tp,
        "max-running-requests": 16,
        "speculative-algorithm": method,
    }
    return replace(base, args=args, parameters=search_parameters("sglang", method), start=(start,))


def _vllm(base: Starter, tp: int) -> Starter:
    method = "eagle3" if base.draft else "ngram"
    start = {"depth": 3} if base.draft else {"depth": 5, "lookup_max": 4}
    args = {
        "tensor-parallel-size": tp,
        "max-num-seqs": 16,
        "speculative-config": {"method": method},
    }
    return replace(base, args=args, parameters=search_parameters("vllm", method), start=(start,))


def _llamacpp(base: Starter) -> Starter:
    args: dict[str, Any] = {"ctx-size": 4096, "parallel": 1}
    if not base.draft:
        start = {"method": "ngram-simple", "simple_n": 12, "simple_m": 48}
        return replace(
            base, args=args, parameters=search_parameters("llamacpp", ""), start=(start,)
        )
    parameters = search_parameters("llamacpp", "draft-simple")
    args["spec-type"] = "draft-simple"
    return replace(base, args=args, parameters=parameters, start=({"depth": 3, "p_min": 0.0},))


def _parameters(parameters: tuple[Dimension, ...]) -> str:
    width = max((len(each.name) + 1 for each in parameters), default=0)
    return "".join(f"    {each.render(width)}\n" for each in parameters)


def _include(spaces: tuple[tuple[str, str], ...]) -> str:
    if not spaces:
        return ""
    lines = "".join(f"    - {scalar(name)}   # {why}\n" for name, why in spaces)
    return f"  include:\n{lines}"


def _executable(starter: Starter) -> str:
    if starter.executable:
        return f"  executable: {scalar(starter.executable)}\n"
    what = "the llama-server binary" if starter.engine == "llamacpp" else "the Python that has it"
    return f"  # executable: /path/to/it   # {what}; default: found on PATH\n"


def _args(args: Mapping[str, Any]) -> str:
    note = "# flags that every server gets, under the engine's own names"
    empty = "  args: {}" if not args else "  args:"
    return f"{empty:<30}{note}\n{_mapping(args)}"


def _mapping(values: Mapping[str, Any]) -> str:
    lines = (f"    {scalar(name)}: {scalar(value)}" for name, value in values.items())
    notes = (_ARG_NOTES.get(name, "") for name in values)
    return "".join(
        f"{line:<32} {note}".rstrip() + "\n" for line, note in zip(lines, notes, strict=True)
    )


def _start(starter: Starter) -> str:
    if not starter.start:
        return ""
    points = [
        "{" + ", ".join(f"{name}: {scalar(value)}" for name, value in point.items()) + "}"
        for point in starter.start
    ]
    return f"  start: [{', '.join(points)}]   # known-good points, measured first\n"
