"""Owns loading: a study file becomes a `LoadedStudy`, or one `ConfigError` with every problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tuner.args import digest_of
from tuner.config.space import ParameterConfig, SpaceFile
from tuner.config.study import StudyConfig


@dataclass(frozen=True, slots=True)
class LoadedStudy:
    """A study file with everything it includes, validated, paths made absolute.

    Args:
        path: the study file.
        config: the study; its `space` is as written, without what it includes.
        parameters: every parameter by name, includes first, in order.
        constraints: every parameter constraint, includes first.
        text: the study file's text.
        digest: identity of what the study means: comments and layout do not change it.
        warnings: what is legal and probably not meant, one line each.
        included: the space files, in order.
    """

    path: Path
    config: StudyConfig
    parameters: Mapping[str, ParameterConfig]
    constraints: tuple[str, ...]
    text: str
    digest: str
    warnings: tuple[str, ...] = ()
    included: tuple[Path, ...] = ()


def load_study(path: Path) -> LoadedStudy:
    """The study of a file; raises ConfigError with all problems at once."""
    text = path.read_text()
    config = StudyConfig.model_validate(yaml.safe_load(text))
    included = [(path.parent / name).resolve() for name in config.space.include]
    spaces = [SpaceFile.model_validate(yaml.safe_load(file.read_text())) for file in included]
    parameters = {k: v for s in spaces for k, v in s.parameters.items()}
    constraints = [c for s in spaces for c in s.constraints]
    digest = digest_of(config.model_dump(mode="json"))
    return LoadedStudy(
        path.absolute(),
        config,
        {**parameters, **config.space.parameters},
        (*constraints, *config.space.constraints),
        text,
        digest,
        included=tuple(included),
    )
