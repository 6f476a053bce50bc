"""Owns turning YAML nodes into plain values: keys, merges, aliases, scalars, all with places.

Nothing is constructed by YAML tags. Knows no study.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from tuner.config.document import DocPath, Document, Place
from tuner.config.scalars import Surprise, resolve_plain

MAX_PARTS = 20_000
"""Most values a file may mean once its aliases are expanded."""

_Pair = tuple[yaml.Node, yaml.Node]


class _TooMuch(Exception):
    """The aliases of the file expand without reasonable end."""


class Construction:
    """Fills a document with the values of a node tree; problems go into the document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.parts = 0
        self.open: set[int] = set()

    def run(self, root: yaml.Node) -> None:
        """Construct everything; the document's value stays None when it is unbounded."""
        try:
            self.document.value = self._value(root, ())
        except _TooMuch:
            self.document.value = None
            self.document.problems.append(
                self.document.problem(
                    (),
                    f"must mean at most {MAX_PARTS:,} values, its aliases mean more",
                    "Write the values out.",
                )
            )

    def _value(self, node: yaml.Node, path: DocPath) -> Any:
        self.parts += 1
        if self.parts > MAX_PARTS:
            raise _TooMuch
        self.document.value_places[path] = place_of(node)
        self._check_tag(node, path)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self.open:
            self._report(node, path, "must not contain itself", "Remove the alias.")
            return None
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self._value(item, (*path, i)) for i, item in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self.open.discard(id(node))

    def _check_tag(self, node: yaml.Node, path: DocPath) -> None:
        tag = self.document.tags.get(place_of(node))
        if tag:
            message, hint = f"must not use YAML tags, got {tag}", "Write the value without a tag."
            self.document.surprises[path] = self.document.problem(path, message, hint)

    def _scalar(self, node: yaml.ScalarNode, path: DocPath) -> Any:
        if node.style is not None:
            return node.value
        value = resolve_plain(node.value)
        if isinstance(value, Surprise):
            problem = self.document.problem_at(place_of(node), path, value.message, value.hint)
            self.document.surprises[path] = problem
            return value.text
        return value

    def _mapping(self, node: yaml.Node, path: DocPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merges: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if _is_merge(key_node):
                merges.append(value_node)
                continue
            self._entry(key_node, value_node, path, result)
        for key_node, value_node in self._merged(merges, path):
            key = self._key(key_node, path)
            if key is not None and key not in result:
                self._entry(key_node, value_node, path, result)
        return result

    def _entry(
        self, key_node: yaml.Node, value_node: yaml.Node, path: DocPath, result: dict[str, Any]
    ) -> None:
        key = self._key(key_node, path)
        if key is None:
            self._report(
                key_node, path, "must have text as keys", "Write a name before the colon."
            )
            return
        inner = (*path, key)
        if key in result:
            first = self.document.key_places[inner].line
            message = f"must be given once, first at line {first}"
            self._report(key_node, inner, message, f"Remove one {key}.")
            return
        self.document.key_places[inner] = place_of(key_node)
        result[key] = self._value(value_node, inner)

    def _key(self, node: yaml.Node, path: DocPath) -> str | None:
        is_text = isinstance(node, yaml.ScalarNode) and (node.style or node.value not in ("", "~"))
        return str(node.value) if is_text else None

    def _merged(self, merges: list[yaml.Node], path: DocPath) -> Iterator[_Pair]:
        for node in merges:
            sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
            for source in sources:
                yield from self._merge_source(source, path, 0)

    def _merge_source(self, source: yaml.Node, path: DocPath, depth: int) -> Iterator[_Pair]:
        if not isinstance(source, yaml.MappingNode) or id(source) in self.open:
            self._report(source, path, "must merge mappings with <<", "Write `<<: *name`.")
            return
        inner: list[yaml.Node] = []
        for key_node, value_node in source.value:
            self.parts += 1
            if self.parts > MAX_PARTS:
                raise _TooMuch
            if _is_merge(key_node):
                inner.append(value_node)
            else:
                yield key_node, value_node
        self.open.add(id(source))
        yield from self._merged(inner, path)
        self.open.discard(id(source))

    def _report(self, node: yaml.Node, path: DocPath, message: str, hint: str) -> None:
        problem = self.document.problem_at(place_of(node), path, message, hint)
        self.document.problems.append(problem)


def _is_merge(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == "<<" and node.style is None


def place_of(part: yaml.Node | yaml.Event) -> Place:
    """Where a node or event begins."""
    mark = part.start_mark
    return Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
