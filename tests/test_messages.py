"""Every error that a user can meet says what to do about it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner import errors

ROOT = Path(__file__).parent.parent / "tuner"

HINTED = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.TunerError)
} - {"ConfigError", "Interrupted", "TunerError"}
"""All but: problems with hints of their own, what the user did, what came from elsewhere."""


def unhinted(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in HINTED:
            least = 3 if ast.unparse(node.func).endswith("StudyMismatch") else 2
            if len(node.args) < least and "hint" not in {word.arg for word in node.keywords}:
                yield node


@pytest.mark.parametrize(
    "path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_an_error_has_a_hint(path: Path) -> None:
    found = [f"{path}:{call.lineno}" for call in unhinted(ast.parse(path.read_text()))]
    assert found == []


def test_an_error_without_a_hint_is_found() -> None:
    calls = unhinted(ast.parse("raise UsageError('x')\nraise HostError('x', 'y')"))
    assert [call.lineno for call in calls] == [1]
