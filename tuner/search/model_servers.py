"""Owns servers as the model sees them: from flag names to depth, branches, matches and columns.

Flags are recognised by the endings that engines use for the same thing; what is not recognised
is a plain column that the model interpolates over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.args import Params, ServerArgs
from tuner.model.gaussian import Array
from tuner.model.observation import Designs
from tuner.search.sampling import Ground
from tuner.search.strategies import is_ordered
from tuner.space import Parameter

STEPS = ("num-steps", "spec-steps", "steps", "n-max", "size-m", "num-speculative-tokens",
         "draft-max", "block-size")  # fmt: skip
TREE_TOKENS = ("num-draft-tokens", "spec-draft-tokens", "draft-tokens")
BRANCH = ("topk", "bfs-breadth")
MATCH = ("size-n", "n-match", "prompt-lookup-max")
LEAST_MATCH = ("prompt-lookup-min",)
METHOD = ("spec-type", "method", "algorithm")
ROLES = (*STEPS, *TREE_TOKENS, *BRANCH, *MATCH, *METHOD)

LOOKUP_WORDS = ("ngram", "lookup", "suffix")
UNKNOWN_DEPTH = 8.0
ABSENT = 0.5
"""Where a parameter that does not exist stands: near to all its values."""


@dataclass(frozen=True, slots=True)
class Roles:
    """What one server's flags mean for drafting; 0 where there is no such flag. `flags`: all of
    them by their last part."""

    method: str
    depth: float
    nodes: float
    branch: float
    match: float
    passes: float
    is_lookup: bool
    least: float = 0.0
    flags: Mapping[str, object] = field(default_factory=dict)


def roles_of(args: ServerArgs, *, is_lookup: bool | None = None) -> Roles:
    """The roles of a server's flags.

    Args:
        args: canonical arguments.
        is_lookup: whether a lookup drafts, where the engine says so; None: judged by names.
    """
    flags = {name.replace("_", "-"): value for name, value in _flat(args)}
    method = next((str(v) for n, v in flags.items() if n.endswith(METHOD)), "")
    numbers = {name: number(value) for name, value in flags.items()}
    steps, tree = _ending(numbers, STEPS), _ending(numbers, TREE_TOKENS)
    branch = max(1.0, _ending(numbers, BRANCH))
    depth = steps or max(0.0, tree - 1.0)
    passes = depth
    if branch > 1 and tree > 1:  # a tree of few tokens is no deeper than it has tokens
        depth = min(depth, tree - 1.0)
    nodes = max(depth, tree - 1.0) if branch > 1 else depth
    branch = min(branch, max(1.0, nodes / max(depth, 1.0))) if tree else branch
    if is_lookup is None:
        words = f"{method} {' '.join(flags)}".lower()
        is_lookup = any(word in words for word in LOOKUP_WORDS)
    match, least = _ending(numbers, MATCH), _ending(numbers, LEAST_MATCH)
    return Roles(method, depth, nodes, branch, match, passes, is_lookup, least, flags)


def _flat(args: ServerArgs) -> Iterator[tuple[str, object]]:
    for name, value in args.flags.items():
        if isinstance(value, dict):
            yield from value.items()
        else:
            yield name.rsplit(".", 1)[-1], value


def _ending(numbers: dict[str, float], endings: tuple[str, ...]) -> float:
    return max((value for name, value in numbers.items() if name.endswith(endings)), default=0.0)


def number(value: object) -> float:
    """A flag's value as a number; 0 for anything else."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return 0.0
    return float(value) if isinstance(value, int | float) and value is not True else 0.0


def designs_of(ground: Ground) -> tuple[Designs, list[Roles]]:
    """Every distinct server of a ground as the model's rows, and their roles."""
    engine = ground.engine
    roles = [
        roles_of(args, is_lookup=engine.draft_source(args) == "lookup" if engine else None)
        for _, args in ground.survey.servers
    ]
    depth = np.array([each.depth for each in roles])
    if not depth.any():
        depth = np.full(len(roles), UNKNOWN_DEPTH)
    nodes = np.maximum(np.array([each.nodes for each in roles]), depth)
    lookup = np.array([each.is_lookup for each in roles])
    traits = _traits(ground, roles)
    designs = Designs(
        rows=_matrix([*traits, *_others(ground, env=True)], len(roles)),
        traits=_matrix(traits, len(roles)),
        depth=depth,
        nodes=nodes,
        branch=np.array([each.branch for each in roles]),
        passes=np.where(lookup, 0.0, np.array([each.passes for each in roles])),
        silent=np.array([float(is_silent(each)) for each in roles]),
    )
    return designs, roles


def is_silent(roles: Roles) -> bool:
    """True where the method's rule proposes nothing: llama.cpp's ngram-simple never proposes
    fewer tokens than it matches (build 11434)."""
    return roles.method.endswith("ngram-simple") and 0 < roles.depth < roles.match


def _matrix(columns: Sequence[Array], count: int) -> Array:
    kept = [column for column in columns if column.size and np.ptp(column) > 0]
    return np.array(kept).T if kept else np.zeros((count, 1))


def _traits(ground: Ground, roles: Sequence[Roles]) -> list[Array]:
    """Method, depth, branches, match, verified tokens, and every other flag."""
    methods = sorted({each.method for each in roles})
    columns = [
        np.array([float(each.method == method) for each in roles]) / math.sqrt(2.0)
        for method in methods[: len(methods) if len(methods) > 2 else 1]
    ]
    for values in (
        [each.depth for each in roles],
        [each.branch for each in roles],
        [each.match for each in roles],
        [each.passes for each in roles],
    ):
        columns.append(_scaled(np.array(values)))
    return [*columns, *_others(ground, env=False)]


def _scaled(values: Array) -> Array:
    """0 to 1 by the logarithm; 0 (absent) stands in the middle."""
    logs = np.log2(np.maximum(values, 1e-9))
    known = logs[values > 0]
    if not len(known):
        return np.full(len(values), ABSENT)
    width = max(float(np.ptp(known)), 1.0)
    return np.where(values > 0, (logs - known.min()) / width, ABSENT)


def _others(ground: Ground, *, env: bool) -> list[Array]:
    """A column per number, one per choice: environment variables, or flags without a role."""
    points = [params for params, _ in ground.survey.servers]
    columns: list[Array] = []
    for parameter in ground.space.parameters:
        flag = (parameter.flag or parameter.name).replace("_", "-")
        if (parameter.env is not None) == env and (env or not flag.endswith(ROLES)):
            columns += _columns(parameter, points)
    return columns


def _columns(parameter: Parameter, points: Sequence[Params]) -> Iterator[Array]:
    if is_ordered(parameter):
        place = _places(parameter)
        yield np.array([place.get(point.get(parameter.name), ABSENT) for point in points])
        return
    values = parameter.values if len(parameter.values) > 2 else parameter.values[:1]
    for value in values:
        chosen = [float(point.get(parameter.name) == value) for point in points]
        yield np.array(chosen) / math.sqrt(2.0)


def _places(parameter: Parameter) -> dict[object, float]:
    """Where each value stands between 0 and 1: by its logarithm where none is negative."""
    values = [float(value) for value in parameter.values]
    if min(values) > 0:
        values = [math.log(value) for value in values]
    elif min(values) == 0 and max(values) > 1:
        values = [math.log1p(value) for value in values]
    low, width = min(values), (max(values) - min(values)) or 1.0
    return {
        original: (value - low) / width
        for original, value in zip(parameter.values, values, strict=True)
    }
