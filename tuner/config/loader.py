"""Owns loading: a study file becomes a `LoadedStudy`, or one `ConfigError` with every problem.

Paths that are relative to the study file leave here as absolute ones.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.args import digest_of
from tuner.config.cautions import find_cautions
from tuner.config.checking import check_model
from tuner.config.document import DocPath, Document
from tuner.config.includes import Source, gather_sources
from tuner.config.reading import read_document
from tuner.config.shipped import include_path
from tuner.config.space import ParameterConfig, SpaceFile
from tuner.config.space_rules import MergedSpace, check_conditions, check_constraints, merge
from tuner.config.start_rules import check_start
from tuner.config.study import StudyConfig
from tuner.config.study_rules import (
    check_cache,
    check_eagle_triple,
    check_engine_and_space,
    check_files,
    check_load,
    check_objective,
)
from tuner.errors import ConfigError, Problem
from tuner.redaction import hide_in_text, is_secret

PLAIN_SWITCHES: tuple[DocPath, ...] = (
    ("workload", "cache"), ("fidelity", "compare"), ("engine", "nccl_probe"),
    ("engine", "measure_cycle"),
)  # fmt: skip
"""Where an unquoted `off` is a word of the format."""

_ALWAYS_PATHS: tuple[DocPath, ...] = (("workload", "prompts", "file"), ("engine", "landscape"))
_MAYBE_PATHS: tuple[DocPath, ...] = (
    ("engine", "executable"),
    ("engine", "model"),
    ("engine", "draft_model"),
)


@dataclass(frozen=True, slots=True)
class LoadedStudy:
    """A study file with everything it includes, validated, paths made absolute.

    Args:
        path: the study file.
        config: the study; its `space` is as written, without what it includes.
        parameters: every parameter by name, includes first, in order.
        constraints: every parameter constraint, includes first.
        text: the study file's text, secrets hidden.
        digest: identity of what the study means: comments, layout, notes and the folder it lies
            in do not change it.
        warnings: what is legal and probably not meant, one line each.
        included: the space files, in order.
        secrets: variables of `engine.env` whose names tell a secret, taken out of `config`: the
            servers inherit them, nothing else ever holds them.
    """

    path: Path
    config: StudyConfig
    parameters: Mapping[str, ParameterConfig]
    constraints: tuple[str, ...]
    text: str
    digest: str
    warnings: tuple[str, ...] = ()
    included: tuple[Path, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def load_study(path: Path) -> LoadedStudy:
    """The study of a file; raises ConfigError with all problems at once."""
    document = read_document(path)
    if document.value is None:
        raise ConfigError(document.problems)
    check_model(document, StudyConfig, PLAIN_SWITCHES)
    sources = gather_sources(document)
    space = _check_rules(document, sources)
    found = (problem for source in sources for problem in source.document.problems)
    problems = list(dict.fromkeys(found))
    if problems:
        raise ConfigError(sorted(problems, key=_order))
    return _loaded(document, sources, space)


def load_space(path: Path) -> Mapping[str, ParameterConfig]:
    """The parameters of a space file and what it includes; raises ConfigError."""
    document = read_document(path)
    if document.value is None:
        raise ConfigError(document.problems)
    check_model(document, SpaceFile)
    sources = gather_sources(document, prefix=())
    space = merge(sources)
    problems = list(dict.fromkeys(p for source in sources for p in source.document.problems))
    if problems:
        raise ConfigError(sorted(problems, key=_order))
    return {name: d.config for name, d in space.declared.items() if d.config is not None}


def _check_rules(document: Document, sources: list[Source]) -> MergedSpace:
    space = merge(sources)
    check_conditions(space)
    check_constraints(space)
    check_start(space, document, ("space", "start"))
    check_load(document)
    check_cache(document)
    check_objective(document)
    check_files(document)
    check_engine_and_space(document, space)
    check_eagle_triple(document, space)
    return space


def _order(problem: Problem) -> tuple[str, int, int, str]:
    return problem.file, problem.line, problem.column, problem.path


def _loaded(document: Document, sources: list[Source], space: MergedSpace) -> LoadedStudy:
    written, secrets = take_secrets(StudyConfig.model_validate(document.value))
    absolute = StudyConfig.model_validate(absolute_paths(document.value, document.path.parent))
    parameters = {name: d.config for name, d in space.declared.items() if d.config is not None}
    constraints = tuple(text for _, _, text in space.constraints)
    return LoadedStudy(
        path=document.path.resolve(),
        config=take_secrets(absolute)[0],
        parameters=parameters,
        constraints=constraints,
        text=hide_in_text(document.text, secrets.values()),
        digest=_digest(written, parameters, constraints),
        warnings=tuple(find_cautions(document, written, space)),
        included=tuple(source.document.path.resolve() for source in sources[:-1]),
        secrets=secrets,
    )


def take_secrets(config: StudyConfig) -> tuple[StudyConfig, dict[str, str]]:
    """The study without its secret variables, and those variables."""
    env = config.engine.env
    secrets = {name: value for name, value in env.items() if is_secret(name) and value}
    rest = {name: value for name, value in env.items() if name not in secrets}
    engine = config.engine.model_copy(update={"env": rest})
    return config.model_copy(update={"engine": engine}), secrets


def _digest(
    written: StudyConfig, parameters: Mapping[str, ParameterConfig], constraints: tuple[str, ...]
) -> str:
    study = written.model_dump(mode="json", by_alias=True, exclude={"space", "note"})
    space = {
        name: config.model_dump(mode="json", by_alias=True, exclude={"note"}, exclude_none=True)
        for name, config in parameters.items()
    }
    start = written.space.start
    return digest_of({"study": study, "space": space, "rules": constraints, "start": start})


def absolute_paths(value: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A study's plain value with every path that is relative to its file made absolute.

    `model`, `draft_model` and `executable` are paths only when they begin with `./` or `../`.
    """
    study = copy.deepcopy(dict(value))
    load = study.get("workload", {}).get("load") or []
    traces = [("workload", "load", index, "trace") for index in range(len(load))]
    space = study.get("space", {})
    if space.get("include"):
        names = space["include"]
        space["include"] = [str(include_path(name, folder).resolve()) for name in names]
    for path in (*_ALWAYS_PATHS, *traces):
        _replace(study, path, folder, only_dotted=False)
    for path in _MAYBE_PATHS:
        _replace(study, path, folder, only_dotted=True)
    return study


def _replace(study: Any, path: DocPath, folder: Path, *, only_dotted: bool) -> None:
    parent = study
    for part in path[:-1]:
        parent = parent[part] if isinstance(part, int) else parent.get(part, {})
    key: Any = path[-1]
    text = parent[key] if isinstance(parent, list) else parent.get(key)
    if isinstance(text, str) and (not only_dotted or text.startswith(("./", "../"))):
        parent[key] = str((folder / text).resolve())
