"""The shipped spaces and studies: each loads, and every point of it is a sound server."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tuner.config.engine import VllmConfig
from tuner.config.loader import load_study
from tuner.engines.base import EngineFacts
from tuner.engines.vllm import VllmEngine
from tuner.space import SearchSpace, build_space, survey

ROOT = Path(__file__).parents[3]
SPACES = sorted((ROOT / "search_spaces").glob("vllm-*.yaml"))
STUDIES = sorted((ROOT / "studies").glob("vllm-*.yaml"))


def counts(engine: VllmEngine, space: SearchSpace) -> dict[str, int]:
    found = survey(
        space,
        lambda point: engine.canonicalize(point, space),
        lambda args: engine.violations(args, EngineFacts()),
    )
    return found.counts()


def study_over(space: Path, folder: Path) -> Path:
    """A minimal study that includes one shipped space."""
    study = {
        "name": "over-one-space",
        "engine": {"kind": "vllm", "model": "m", "draft_model": "/d",
                   "args": {"tensor-parallel-size": 4}},
        "space": {"include": [str(space)]},
        "workload": {"prompts": {"builtin": "mixed"}},
        "objective": {"maximize": "output_tokens_per_s"},
    }  # fmt: skip
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_every_point_of_a_shipped_space_drafts(path: Path, tmp_path: Path) -> None:
    loaded = load_study(study_over(path, tmp_path))
    assert loaded.warnings == ()
    assert isinstance(loaded.config.engine, VllmConfig)
    engine, space = VllmEngine(loaded.config.engine), build_space(loaded)
    legal = [point for point in space.points() if not space.broken_constraints(point)]
    servers = [engine.canonicalize(point, space) for point in legal]
    assert all(engine.is_speculative(server) for server in servers)
    assert [v for server in servers for v in engine.violations(server, EngineFacts())] == []
    assert len({server.digest for server in servers}) == len(legal)
    methods = {server.flags["speculative-config"]["method"] for server in servers}  # type: ignore[index,call-overload]
    assert methods == {space.parameter("method").values[0]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("vllm-llama31-8b-eagle3", (14, 7, 0, 7)), ("vllm-ngram", (240, 160, 80, 0))],
)
def test_shipped_studies(name: str, expected: tuple[int, ...]) -> None:
    loaded = load_study(ROOT / "studies" / f"{name}.yaml")
    assert loaded.warnings == ()
    assert isinstance(loaded.config.engine, VllmConfig)
    engine, space = VllmEngine(loaded.config.engine), build_space(loaded)
    found = counts(engine, space)
    keys = ("points", "distinct", "infeasible", "duplicates")
    assert tuple(found[key] for key in keys) == expected


def test_all_five_methods_have_a_space() -> None:
    assert [path.stem for path in SPACES] == [
        f"vllm-{name}" for name in ("draft", "eagle3", "mtp", "ngram", "suffix")
    ]
    assert len(STUDIES) >= 2
