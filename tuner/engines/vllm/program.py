"""Owns which files start vLLM: the interpreter that has it, and the `vllm` script beside it.

Looks at file names and a script's first line only; starts nothing.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

_MODULE = "vllm.entrypoints.cli.main"


@dataclass(frozen=True, slots=True)
class Program:
    """How `vllm serve` is started, and which interpreter answers questions about vLLM."""

    serve: tuple[str, ...]
    interpreter: str


def find_program(executable: str | None) -> Program:
    """The program of an `executable`: an interpreter, a `vllm` script, or None for PATH.

    With an interpreter the script beside it is preferred to `-m`, which would put the current
    folder first on the import path: a folder named `vllm` or `tokenizers` there breaks vLLM.
    """
    path = Path(executable or shutil.which("vllm") or "vllm")
    if path.name.startswith("python"):
        script = path.with_name("vllm")
        if script.is_file():
            return Program((str(path), str(script), "serve"), str(path))
        return Program((str(path), "-m", _MODULE, "serve"), str(path))
    return Program((str(path), "serve"), _interpreter_of(path))


def _interpreter_of(script: Path) -> str:
    """The interpreter a console script names, else the one beside it, else `python3`.

    A script that is not there answers for itself: running it says so in the system's words.
    """
    try:
        with script.open("rb") as file:
            first = file.readline(4096).decode("utf-8", "replace").strip()
    except OSError:
        return str(script)
    named = first.removeprefix("#!").strip().split(" ")[0]
    if first.startswith("#!") and Path(named).name.startswith("python"):
        return named
    beside = script.with_name("python3")
    return str(beside) if beside.exists() else "python3"
