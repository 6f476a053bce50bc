"""Owns holding a document against a model: every error at its place, once, without echoes.

A validator stops at the first broken layer of a model. So what is wrong is cut out of a copy and
the rest is validated again, until nothing new is found.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from tuner.config.base import BROKEN_RULES, UNKNOWN_KEYS, Issue
from tuner.config.document import DocPath, Document
from tuner.config.messages import describe, describe_kind

Model = TypeVar("Model", bound=BaseModel)
_ROUNDS = 12


def piece(document: Document, path: DocPath, model: type[Model]) -> Model | None:
    """The part of a document at a path as a model; None where it is absent or broken."""
    if not document.has(path) or any(_starts(at, path) for at in document.surprises):
        return None
    try:
        return model.model_validate(document.get(path))
    except ValidationError:
        return None


def check_model(
    document: Document, model: type[BaseModel], plain_switches: Collection[DocPath] = ()
) -> None:
    """Add every way in which the document is not this model to its problems.

    `plain_switches` are paths where an unquoted `off` is a word of the format.
    """
    checker = _Checker(document, model)
    for path, problem in document.surprises.items():
        if path not in plain_switches:
            document.problems.append(problem)
            checker.cut(path)
    for _ in range(_ROUNDS):
        if not checker.round():
            return


class _Checker:
    def __init__(self, document: Document, model: type[BaseModel]) -> None:
        self.document = document
        self.model = model
        self.data = copy.deepcopy(document.value)
        self.broken: set[DocPath] = set()
        self.reported: set[tuple[DocPath, str]] = set()

    def round(self) -> bool:
        """Validate what is left; true when something was cut out, so that another is needed."""
        try:
            self.model.model_validate(self.data)
        except ValidationError as error:
            return self._take(error)
        return False

    def _take(self, error: ValidationError) -> bool:
        by_path: dict[DocPath, list[Mapping[str, Any]]] = {}
        for item in error.errors(include_url=False, include_input=False):
            is_missing = item["type"] == "missing"
            path = self._locate(item["loc"], keep_last=is_missing)
            by_path.setdefault(path, []).append(item)
        cuts = [self._report(path, items) for path, items in by_path.items()]
        return any(cuts)

    def _locate(self, loc: tuple[str | int, ...], *, keep_last: bool) -> DocPath:
        """A validator's location as a document path: names of union branches are left out."""
        path: DocPath = ()
        for index, part in enumerate(loc):
            is_last = index == len(loc) - 1
            if self.document.has((*path, part)) or (is_last and keep_last):
                path = (*path, part)
        return path

    def _report(self, path: DocPath, items: list[Mapping[str, Any]]) -> bool:
        kind, context = items[0]["type"], items[0].get("ctx", {})
        if kind == UNKNOWN_KEYS:
            return self._report_unknown(path, context["issues"])
        if kind == BROKEN_RULES:
            return self._report_rules(path, context["issues"])
        if kind == "missing" and isinstance(path[-1], str):
            if path not in self.broken:
                self._add(path, "must be given", f"Add {path[-1]}.")
            return False
        if kind == "missing":
            path = path[:-1]
        if kind.startswith("union_tag"):
            tags = union_tags(self.model, str(path[-1]))
            message, hint = describe_kind(tags, self.document.get((*path, "kind")))
            self._add((*path, "kind"), message, hint)
            return self.cut(path)
        message, hint = describe(items, self.document.get(path))
        self._add(path, message, hint)
        return self.cut(path)

    def _report_unknown(self, path: DocPath, issues: tuple[Issue, ...]) -> bool:
        """An unknown key that resembles a known one may be why something else is missing."""
        for issue in issues:
            self._add((*path, *issue.at), issue.message, issue.hint, of_key=True)
            self.cut((*path, *issue.at), is_suspect=issue.hint.startswith("Did you mean"))
        return True

    def _report_rules(self, path: DocPath, issues: tuple[Issue, ...]) -> bool:
        is_cut = any(len(cut) == len(path) + 1 and _starts(cut, path) for cut in self.broken)
        for issue in issues:
            if not (issue.is_absence and is_cut):
                self._add((*path, *issue.at), issue.message, issue.hint, of_key=issue.is_key)
        return self.cut(path)

    def _add(self, path: DocPath, message: str, hint: str, *, of_key: bool = False) -> None:
        if (path, message) not in self.reported:
            self.reported.add((path, message))
            problem = self.document.problem(path, message, hint, of_key=of_key)
            self.document.problems.append(problem)

    def cut(self, path: DocPath, *, is_suspect: bool = True) -> bool:
        """Remove the nearest mapping entry at or above a path from what is still validated."""
        while path and isinstance(path[-1], int):
            path = path[:-1]
        if not path:
            return False
        if is_suspect:
            self.broken.add(path)
        parent = self.data
        for part in path[:-1]:
            parent = parent.get(part) if isinstance(parent, dict) else _item(parent, part)
        if not isinstance(parent, dict) or path[-1] not in parent:
            return False
        del parent[path[-1]]
        return True


def union_tags(model: type[BaseModel], name: str) -> list[str]:
    """The kinds of a section that is a union of models."""
    branches = get_args(model.model_fields[name].annotation)
    return [str(get_args(branch.model_fields["kind"].annotation)[0]) for branch in branches]


def _item(parent: Any, part: str | int) -> Any:
    is_index = isinstance(parent, list) and isinstance(part, int) and part < len(parent)
    return parent[part] if is_index else None


def _starts(path: DocPath, prefix: DocPath) -> bool:
    return path[: len(prefix)] == prefix
