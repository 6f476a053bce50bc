"""Owns following `include`: which documents make up a space, in order, each once.

Knows nothing of what parameters mean.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.config.base import nearest
from tuner.config.checking import check_model, piece
from tuner.config.document import DocPath, Document
from tuner.config.reading import names_a_file, read_document
from tuner.config.shipped import PREFIX, include_path
from tuner.config.space import ParameterConfig, SpaceFile


@dataclass(frozen=True, slots=True)
class Declared:
    """A parameter where it is written; `config` is None while it is broken."""

    name: str
    document: Document
    path: DocPath
    config: ParameterConfig | None


@dataclass(frozen=True, slots=True)
class Source:
    """A document that holds `parameters` and `constraints` below a prefix."""

    document: Document
    prefix: DocPath = ()

    def parameters(self) -> Iterator[Declared]:
        """Its parameters in order, broken ones too."""
        section = (*self.prefix, "parameters")
        found = self.document.get(section)
        for name in found if isinstance(found, dict) else ():
            path = (*section, name)
            yield Declared(name, self.document, path, piece(self.document, path, ParameterConfig))

    def constraints(self) -> Iterator[tuple[DocPath, str]]:
        """Its constraints with their paths."""
        section = (*self.prefix, "constraints")
        found = self.document.get(section)
        for index, text in enumerate(found if isinstance(found, list) else ()):
            if isinstance(text, str) and (*section, index) not in self.document.surprises:
                yield (*section, index), text


def gather_sources(document: Document, prefix: DocPath = ("space",)) -> list[Source]:
    """Every source of a study's space: what is included first, the study itself last.

    With `prefix=()` the document is a space file itself.
    """
    sources: list[Source] = []
    _follow(Source(document, prefix), [document.path.resolve()], sources)
    return sources


def _follow(source: Source, trail: list[Path], sources: list[Source]) -> None:
    section = (*source.prefix, "include")
    names = source.document.get(section)
    for index, name in enumerate(names if isinstance(names, list) else ()):
        if isinstance(name, str):
            _include(source, (*section, index), name, trail, sources)
    sources.append(source)


def _include(
    source: Source, at: DocPath, name: str, trail: list[Path], sources: list[Source]
) -> None:
    document, file = source.document, include_path(name, source.document.path.parent)
    real = file.resolve()
    if real in trail:
        message = f"must not include itself, got {name}"
        document.problems.append(document.problem(at, message, "Remove the include."))
    elif any(real == other.document.path.resolve() for other in sources):
        message = f"must be included once, got {name} again"
        document.problems.append(document.problem(at, message, "Remove one include."))
    elif not names_a_file(file):
        message = f"must name a space file relative to {document.label}, got {name}"
        document.problems.append(document.problem(at, message, _near_file(file, name)))
    else:
        is_shipped = name.startswith(PREFIX)
        label = name if is_shipped else os.path.normpath(Path(document.label).parent / name)
        included = read_document(file, label)
        if included.value is not None:
            check_model(included, SpaceFile)
        _follow(Source(included), [*trail, real], sources)


def _near_file(file: Path, name: str) -> str:
    if not file.parent.is_dir():
        return f"There is no folder {os.path.normpath(file.parent)}."
    near = nearest(file.name, (entry.name for entry in file.parent.glob("*.yaml")))
    if not near:
        return "Check the path."
    return f"Did you mean {PREFIX if name.startswith(PREFIX) else ''}{_beside(name, near)}?"


def _beside(name: str, near: str) -> str:
    return near if name.startswith(PREFIX) else str(Path(name).parent / near)
