"""Owns the rules between the sections of a study: objective and load, engine and space, files.

Works on documents, so that what is broken in one section hides nothing in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuner.config.base import nearest, repeated
from tuner.config.checking import piece
from tuner.config.document import DocPath, Document
from tuner.config.environment import is_nccl
from tuner.config.includes import Declared
from tuner.config.metric_names import DIRECTIONS, unknown_metric
from tuner.config.reading import names_a_file
from tuner.config.space_rules import MergedSpace, place_inside
from tuner.config.workload import LoadConfig
from tuner.expressions import ExpressionError, OutcomeConstraint, parse_outcome

_FILES: tuple[tuple[DocPath, str], ...] = (
    (("workload", "prompts", "file"), "a prompt file"),
    (("engine", "landscape"), "a recorded landscape"),
)
_GPU_COUNTS: Mapping[str, frozenset[str]] = {
    "sglang": frozenset({"tp", "tp-size", "tensor-parallel-size", "pp-size", "dp-size", "ep-size",
                         "pipeline-parallel-size", "data-parallel-size", "nnodes"}),
    "vllm": frozenset({"tp", "tensor-parallel-size", "pp", "pipeline-parallel-size", "dp",
                       "data-parallel-size", "nnodes"}),
}  # fmt: skip
"""Flags that say how many GPUs one server spans."""

_CACHE_NEEDS: Mapping[str, tuple[frozenset[str], str]] = {
    "flush": (frozenset({"sglang", "fake", "replay"}), "empties its prompt cache on request"),
    "off": (frozenset({"llamacpp", "fake", "replay"}), "lets a request go without a cache"),
}
"""Ways to keep the prompt cache out, the engines that can, and what they can."""

_ALGORITHM = "speculative-algorithm"
_EAGLE_TRIPLE = (
    "speculative-num-steps",
    "speculative-eagle-topk",
    "speculative-num-draft-tokens",
)
_EAGLE_FAMILY = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "FROZEN_KV_MTP"})


def check_objective(study: Document) -> None:
    """`at` is one of the load points, required with several; outcome constraints parse."""
    _check_at(study)
    section = ("objective", "constraints")
    texts = study.get(section)
    for index, text in enumerate(texts if isinstance(texts, list) else ()):
        if isinstance(text, str) and (*section, index) not in study.surprises:
            _check_outcome(study, (*section, index), text)
    _check_goodput(study)


def check_load(study: Document) -> None:
    """Load points are distinct, also where another part of the workload is broken."""
    points = _written_points(study)
    labels = [point.label() if point is not None else f"broken {i}" for i, point in points]
    for issue in repeated(labels, _LOAD):
        study.problems.append(study.problem(issue.at, issue.message, issue.hint))


def check_cache(study: Document) -> None:
    """The prompt cache is kept out in a way that the engine has: another one would do nothing."""
    mode, kind = study.get(("workload", "cache")), study.get(("engine", "kind"))
    able, what = _CACHE_NEEDS.get(mode, (frozenset(), "")) if isinstance(mode, str) else ((), "")
    if able and isinstance(kind, str) and kind in _KINDS - able:
        message = f"must be a way that {kind} has, got {mode}: only {_words(able)} {what}"
        hint = "Leave it out: auto keeps the cache from helping on every engine."
        study.problems.append(study.problem(("workload", "cache"), message, hint))


_KINDS = frozenset({"sglang", "vllm", "llamacpp"})


def _words(engines: frozenset[str]) -> str:
    return " and ".join(sorted(engines & _KINDS))


_LOAD = ("workload", "load")


def _written_points(study: Document) -> list[tuple[int, LoadConfig | None]]:
    found = study.get(_LOAD)
    count = len(found) if isinstance(found, list) else 0
    return [(index, piece(study, (*_LOAD, index), LoadConfig)) for index in range(count)]


def _load_points(study: Document) -> list[LoadConfig] | None:
    """The load points; None while any is broken."""
    if not study.has(_LOAD):
        return [LoadConfig(concurrency=1)] if study.has(("workload",)) else None
    points = _written_points(study)
    sound = [point for _, point in points if point is not None]
    return sound if sound and len(sound) == len(points) else None


def _check_at(study: Document) -> None:
    points, at = _load_points(study), ("objective", "at")
    if points is None or not isinstance(study.get(("objective",)), dict):
        return
    labels = ", ".join(point.label() for point in points)
    if not study.has(at):
        if len(points) > 1:
            message = f"must name one of the {len(points)} load points, got none"
            study.problems.append(study.problem(at, message, f"Add at: one of {labels}."))
        return
    chosen = piece(study, at, LoadConfig)
    if chosen is not None and chosen.label() not in [point.label() for point in points]:
        message = f"must be one of the load points, got {chosen.label()}"
        study.problems.append(study.problem(at, message, f"Load points: {labels}."))


def outcome_constraints(study: Document) -> Iterator[OutcomeConstraint]:
    """The outcome constraints that parse."""
    texts = study.get(("objective", "constraints"))
    for text in texts if isinstance(texts, list) else ():
        try:
            yield parse_outcome(text)
        except (ExpressionError, TypeError, AttributeError):
            continue


def _check_outcome(study: Document, path: DocPath, text: str) -> None:
    try:
        constraint = parse_outcome(text)
    except ExpressionError as error:
        place = place_inside(study, path, text, error.offset)
        study.problems.append(study.problem_at(place, path, error.message, error.hint))
        return
    if constraint.metric not in DIRECTIONS:
        issue = unknown_metric(constraint.metric)
        study.problems.append(study.problem(path, issue.message, issue.hint))


def _check_goodput(study: Document) -> None:
    objective = study.get(("objective",))
    named = list(objective.values()) if isinstance(objective, dict) else []
    named += [constraint.metric for constraint in outcome_constraints(study)]
    if "goodput_per_s" in named and not study.has(("workload", "limits")):
        message = "must be given for goodput_per_s"
        hint = "Add limits: {ttft_ms: 500, tpot_ms: 50}."
        study.problems.append(study.problem(("workload", "limits"), message, hint))


def check_files(study: Document) -> None:
    """Files that the study reads exist, relative to the study file."""
    load = study.get(("workload", "load"))
    count = len(load) if isinstance(load, list) else 0
    traces = [(("workload", "load", index, "trace"), "a trace file") for index in range(count)]
    for path, what in (*_FILES, *traces):
        name = study.get(path)
        if not isinstance(name, str) or path in study.surprises:
            continue
        file = study.path.parent / name
        if not names_a_file(file):
            folder = file.parent
            names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
            near = nearest(file.name, names)
            hint = f"Did you mean {near}?" if near else "The path is relative to the study file."
            message = f"must be {what} that exists, got {name}"
            study.problems.append(study.problem(path, message, hint))


def check_engine_and_space(study: Document, space: MergedSpace) -> None:
    """Nothing is both fixed and searched, nothing twice, and NCCL only where GPUs talk."""
    kind = str(study.get(("engine", "kind")))
    args = _mapping(study, ("engine", "args"))
    env = _mapping(study, ("engine", "env"))
    first: dict[str, Declared] = {}
    for declared in space.declared.values():
        config = declared.config
        if config is None:
            continue
        target = f"flag {config.flag}" if config.flag else f"variable {config.env}"
        if config.flag in args or config.env in env:
            where = "engine.args" if config.flag else "engine.env"
            _report_target(declared, f"must not be searched and fixed, {target} is in {where}",
                           f"Remove it from {where}, or the parameter.")  # fmt: skip
        other = first.setdefault(target, declared)
        if other is not declared and not _are_alternatives(other, declared):
            message = f"must not be searched twice, {target} is also {other.name}"
            _report_target(declared, message, "Remove one, or give both a `when`.")
    if kind in _GPU_COUNTS and _is_one_gpu(_GPU_COUNTS[kind], args, space):
        _report_idle_nccl(space)


def _report_target(declared: Declared, message: str, hint: str) -> None:
    key = "flag" if declared.document.has((*declared.path, "flag")) else "env"
    problem = declared.document.problem((*declared.path, key), message, hint)
    declared.document.problems.append(problem)


def _are_alternatives(one: Declared, other: Declared) -> bool:
    return all(d.config is not None and d.config.when is not None for d in (one, other))


def _is_one_gpu(flags: frozenset[str], args: Mapping[str, object], space: MergedSpace) -> bool:
    spans = [value for flag, value in args.items() if flag in flags]
    for declared in space.declared.values():
        if declared.config is not None and declared.config.flag in flags:
            spans += declared.config.values()
    return all(span == 1 for span in spans)


def _report_idle_nccl(space: MergedSpace) -> None:
    for declared in space.declared.values():
        if declared.config is not None and is_nccl(declared.config.env or ""):
            message = (
                f"must not be searched on one GPU, where NCCL is idle, got {declared.config.env}"
            )
            _report_target(declared, message, "Set engine.args.tp-size, or remove the parameter.")


def check_eagle_triple(study: Document, space: MergedSpace) -> None:
    """SGLang takes steps, topk and draft tokens together or not at all (0.5.23 asserts)."""
    args = _mapping(study, ("engine", "args"))
    searched = {d.config.flag: d for d in space.declared.values() if d.config is not None}
    algorithms = {str(value).upper() for value in _offered(_ALGORITHM, args, searched)}
    if study.get(("engine", "kind")) != "sglang" or not algorithms & _EAGLE_FAMILY:
        return
    given = [flag for flag in _EAGLE_TRIPLE if flag in args or flag in searched]
    missing = [flag for flag in _EAGLE_TRIPLE if flag not in given]
    if not given or not missing or _is_chain(missing, args, searched):
        return
    message = f"must be given together, got {' and '.join(given)} without {', '.join(missing)}"
    hint = "Fix or search the rest as well; SGLang does not fill it in."
    if given[0] in searched:
        _report_target(searched[given[0]], message, hint)
    else:
        path = ("engine", "args", given[0])
        study.problems.append(study.problem(path, message, hint, of_key=True))


def _is_chain(
    missing: list[str], args: Mapping[str, object], searched: Mapping[str | None, Declared]
) -> bool:
    """With topk 1 alone the draft is steps + 1, which the engine adapter fills in."""
    topks = _offered(_EAGLE_TRIPLE[1], args, searched)
    return missing == [_EAGLE_TRIPLE[2]] and all(value == 1 for value in topks)


def _offered(
    flag: str, args: Mapping[str, object], searched: Mapping[str | None, Declared]
) -> tuple[object, ...]:
    """The values a flag may have in the study, fixed or searched."""
    declared = searched.get(flag)
    config = declared.config if declared is not None else None
    return config.values() if config is not None else (args.get(flag),)


def _mapping(study: Document, path: DocPath) -> Mapping[str, object]:
    found = study.get(path)
    return found if isinstance(found, dict) else {}
