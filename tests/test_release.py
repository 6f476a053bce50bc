"""What a release consists of: one version, files that the wheel ships, a dated change."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tuner import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_there_is_one_version(project: dict[str, Any]) -> None:
    assert project["project"]["version"] == __version__
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_what_the_wheel_ships_exists(project: dict[str, Any]) -> None:
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert set(shipped) >= {"search_spaces", "studies", "schema", "docs/troubleshooting.md"}
    for name, place in shipped.items():
        assert place == f"tuner/shipped/{name}"
        assert (ROOT / name).exists()


def test_licences_are_shipped(project: dict[str, Any]) -> None:
    files = project["project"]["license-files"]
    assert files == ["LICENSE", "NOTICE"]
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8").lower()
    for requirement in project["project"]["dependencies"]:
        name = re.match(r"[A-Za-z0-9-]+", requirement)
        assert name is not None
        assert name[0].lower() in notice, requirement


def test_the_command_exists(project: dict[str, Any]) -> None:
    module, _, function = project["project"]["scripts"]["tuner"].partition(":")
    assert callable(getattr(import_module(module), function))


def test_the_readme_is_the_description(project: dict[str, Any]) -> None:
    assert project["project"]["readme"] == "README.md"
    assert (ROOT / "README.md").is_file()
