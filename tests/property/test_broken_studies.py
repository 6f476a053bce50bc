"""Whatever is broken in a study, loading ends with a study or with problems that have a place."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.config.loader import load_study
from tuner.errors import ConfigError
from tuner.space import build_space

GOOD = Path(__file__).parent.parent / "configs" / "good"
STUDIES = [yaml.safe_load((GOOD / name).read_text()) for name in ("sglang.yaml", "vllm.yaml")]
WEIRD = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1e9,
        2.5,
        "",
        "unset",
        "topk > 1",
        "a b",
        [],
        {},
        [[]],
        {"a": {}},
        "'",
        "*",
    ]
)
RAW = st.sampled_from(
    ["on", "1e3", "010", "2026-01-01", "!!str 5", "{", "\t", "*x", "&x", "'", ""]
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        found += paths(inner, (*path, key))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The good studies' folder, with the files they name."""
    return Path(shutil.copytree(GOOD, tmp_path_factory.mktemp("broken") / "good"))


def load_text(folder: Path, text: str) -> None:
    path = folder / "study.yaml"
    path.write_text(text)
    try:
        build_space(load_study(path))
    except ConfigError as error:
        problems = error.problems
    else:
        return
    lines = text.count("\n") + 2
    assert problems
    assert all(1 <= p.line <= lines and p.column >= 1 and p.message for p in problems)
    assert len(set(problems)) == len(problems)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_replaced_value(folder: Path, data: st.DataObject) -> None:
    study = copy.deepcopy(data.draw(st.sampled_from(STUDIES)))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(paths(study)[1:]))
        parent = study
        for part in path[:-1]:
            parent = parent[part]
        parent[path[-1]] = copy.deepcopy(data.draw(WEIRD))
        if data.draw(st.booleans()) and isinstance(parent, dict):
            parent[f"{path[-1]}x"] = parent.pop(path[-1])
    load_text(folder, yaml.safe_dump(study, sort_keys=False))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_broken_text(folder: Path, data: st.DataObject) -> None:
    text = (GOOD / "vllm.yaml").read_text()
    at = data.draw(st.integers(0, len(text)))
    until = data.draw(st.integers(at, min(len(text), at + 8)))
    load_text(folder, text[:at] + data.draw(RAW) + text[until:])


@pytest.mark.parametrize("text", ["a", "[]", "3", "name: x\n", "{}", "engine: {}\nspace: 3\n"])
def test_fragments(folder: Path, text: str) -> None:
    load_text(folder, text)
