"""Owns `Document`: a YAML file as plain values that remember where they stand.

Knows neither how YAML is read nor what a study is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tuner.errors import Problem

DocPath: TypeAlias = tuple[str | int, ...]


class Place(NamedTuple):
    """Line and column, both from 1."""

    line: int
    column: int


def path_text(path: DocPath) -> str:
    """`space.parameters.topk.choices[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


Places: TypeAlias = dict[DocPath, Place]


@dataclass(slots=True)
class Document:
    """The plain value of a YAML file, where each part stands, and what is wrong with it.

    Args:
        label: the file's name as problems show it.
        value: plain dictionaries, lists and scalars; None for a file that cannot be read at all.
        value_places, key_places: where the value, and the key before it, begin.
        problems: what is wrong so far.
        surprises: paths whose value YAML readers disagree about, with the problem each is.
        tags: YAML tags by the place of the value they stand before.
    """

    label: str
    path: Path
    text: str = ""
    value: Any = None
    value_places: Places = field(default_factory=dict)
    key_places: Places = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    surprises: dict[DocPath, Problem] = field(default_factory=dict)
    tags: dict[Place, str] = field(default_factory=dict)

    def place(self, path: DocPath, *, of_key: bool = False) -> Place:
        """Where a value (or its key) begins; for an absent path, where its parent stands."""
        if of_key and path in self.key_places:
            return self.key_places[path]
        if path in self.value_places:
            return self.value_places[path]
        parent = path[:-1]
        while parent and parent not in self.value_places:
            parent = parent[:-1]
        return self.key_places.get(parent) or self.value_places.get(parent) or Place(1, 1)

    def problem(
        self, path: DocPath, message: str, hint: str = "", *, of_key: bool = False
    ) -> Problem:
        """A problem at a path of this file."""
        return self.problem_at(self.place(path, of_key=of_key), path, message, hint)

    def problem_at(self, place: Place, path: DocPath, message: str, hint: str = "") -> Problem:
        """A problem at a place of this file."""
        return Problem(self.label, place.line, place.column, path_text(path), message, hint)

    def has(self, path: DocPath) -> bool:
        """True when the file says something at this path."""
        return path in self.value_places

    def get(self, path: DocPath) -> Any:
        """The plain value at a path; None where there is none."""
        value = self.value
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value
