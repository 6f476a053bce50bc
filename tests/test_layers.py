"""The layering of the design, enforced: imports go downwards, special libraries stay put."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "tuner"

LAYERS = {
    "errors": 0, "units": 0, "expressions": 0, "events": 0, "args": 0, "__init__": 0,
    "redaction": 0, "marked_lines": 0, "embedded": 0,
    "config": 1,
    "space": 2, "model": 2, "host": 2, "server": 2, "measure": 2,
    "engines": 3, "drafts": 3,
    "store": 4,
    "search": 5, "export": 5, "insight": 5,
    "api": 6, "cli": 6,
    "__main__": 7,
}  # fmt: skip

ONLY_IN = {
    "typer": {"cli"}, "rich": {"cli"},
    "xllamacpp": {"embedded"},
    "optuna": {"store", "search"},
    "sqlalchemy": {"store"},
    "httpx": {"server", "measure"},
    "pydantic": {"config", "store"},
    "yaml": {"config", "engines", "export", "drafts"},
    "optuna_dashboard": {"store", "insight", "search"},
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def package_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "relative imports are not used"
            yield node.module
            if node.module == "tuner":
                yield from (f"tuner.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_downwards(path: Path) -> None:
    package = package_of(path)
    layer = LAYERS[package]
    for name in imports(ast.parse(path.read_text())):
        top, _, rest = name.partition(".")
        if top == "tuner" and rest:
            other = rest.split(".")[0]
            if other == "__version__":
                continue
            same = other == package
            within = {"measure", "engines", "space", "server"}
            assert (
                same
                or LAYERS[other] < layer
                or (LAYERS[other] == layer and {other, package} <= within)
            ), f"{package} (layer {layer}) imports {other} (layer {LAYERS[other]})"
        elif top in ONLY_IN:
            assert package in ONLY_IN[top], f"{top} is imported in {package}"


def test_no_import_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for path in modules():
        name = "tuner." + str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
        name = name.removesuffix(".__init__")
        graph[name] = set()
        for node in ast.parse(path.read_text()).body:  # lazy imports inside functions do not count
            graph[name] |= set(imports(node)) if not isinstance(node, ast.FunctionDef) else set()
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name in done or name not in graph:
            return
        for other in sorted(graph[name]):
            if other != name:
                visit(other, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())
