"""Which files start vLLM and which interpreter answers about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.engines.vllm.program import find_program


def script(folder: Path, first_line: str, name: str = "vllm") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"{first_line}\nimport sys\n")
    path.chmod(0o755)
    return path


def test_an_interpreter_runs_the_script_beside_it(tmp_path: Path) -> None:
    vllm = script(tmp_path, "#!/usr/bin/python3")
    python = str(tmp_path / "python3.12")
    assert find_program(python).serve == (python, str(vllm), "serve")
    assert find_program(python).interpreter == python


def test_an_interpreter_without_a_script_runs_the_module() -> None:
    program = find_program("/nowhere/python3")
    assert program.serve == ("/nowhere/python3", "-m", "vllm.entrypoints.cli.main", "serve")


def test_a_script_names_its_interpreter(tmp_path: Path) -> None:
    program = find_program(str(script(tmp_path, "#!/opt/venv/bin/python3.11")))
    assert program.serve == (str(tmp_path / "vllm"), "serve")
    assert program.interpreter == "/opt/venv/bin/python3.11"


def test_a_script_without_a_python_line_uses_what_is_beside_it(tmp_path: Path) -> None:
    path = script(tmp_path, "#!/bin/sh")
    assert find_program(str(path)).interpreter == "python3"
    script(tmp_path, "", name="python3")
    assert find_program(str(path)).interpreter == str(tmp_path / "python3")


def test_path_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(tmp_path, "#!/usr/bin/python3")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program(None).serve == (str(path), "serve")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert find_program(None).serve == ("vllm", "serve")
    assert find_program(None).interpreter == "vllm"
