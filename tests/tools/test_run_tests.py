"""A test that failed is run once more, alone; what fails twice fails the run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools/run_tests.py"
SUITE = """
from pathlib import Path

def count(name):
    with Path(name).open("a") as file:
        file.write("x")
    return len(Path(name).read_text())

def test_steady(): count("steady")
def test_unsteady(): assert count("unsteady") > 1
def test_broken(): assert count("broken") > WORKS_AT
"""


def run(folder: Path, suite: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(suite)
    return subprocess.run(
        [sys.executable, TOOL, "-q", "-p", "no:randomly"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_test_that_passes_alone_is_named_unsteady(tmp_path: Path) -> None:
    done = run(tmp_path, SUITE.replace("WORKS_AT", "0"))
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "UNSTEADY test_it.py::test_unsteady"
    runs = {name: (tmp_path / name).read_text() for name in ("steady", "unsteady", "broken")}
    assert runs == {"steady": "x", "unsteady": "xx", "broken": "x"}


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, SUITE.replace("WORKS_AT", "2"))
    assert done.returncode == 1
    assert "UNSTEADY" not in done.stdout
    assert (tmp_path / "broken").read_text() == "xx"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_tests", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_many_failures_are_final(tool: ModuleType, tmp_path: Path) -> None:
    many = "\n".join(f"def test_{n}():\n    assert False" for n in range(tool.AT_MOST + 1))
    done = run(tmp_path, many)
    assert done.returncode == 1
    assert "once more" not in done.stdout


def test_names_are_read_from_the_short_summary(tool: ModuleType) -> None:
    output = "FAILED a.py::t[x y] - AssertionError: no\nERROR b.py::u\nSKIPPED [1] c.py\n1 failed"
    assert tool.failed_tests(output) == ["a.py::t[x y]", "b.py::u"]
