"""Loading studies: good ones load, bad ones list every mistake at its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tuner.config.loader import load_study
from tuner.config.space import ParameterConfig
from tuner.errors import ConfigError, Problem
from tuner.space import build_space

CONFIGS = Path(__file__).parent.parent / "configs"
GOOD = sorted((CONFIGS / "good").glob("*.yaml"))
SHIPPED = sorted((CONFIGS.parent.parent / "studies").glob("*.yaml"))
BAD = sorted((CONFIGS / "bad").glob("*.yaml"))

FIFTEEN = {
    (2, 7): "name",
    (5, 3): "engine.modle",
    (7, 43): "engine.args.disable-radix-cache",
    (8, 19): "engine.launch_timeout",
    (10, 13): "space.include[0]",
    (12, 47): "space.parameters.steps.int",
    (13, 51): "space.parameters.topk.choices",
    (14, 65): "space.parameters.draft_tokens.choices",
    (15, 22): "space.parameters.nccl_algo.env",
    (16, 57): "space.parameters.overlap.choices[0]",
    (18, 35): "space.constraints[0]",
    (22, 16): "search.seed",
    (23, 1): "objective.at",
    (24, 13): "objective.maximize",
    (25, 30): "objective.constraints[0]",
}


def problems_of(path: Path) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        load_study(path)
    return caught.value.problems


def study(folder: Path, text: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(text)
    return path


SMALL = """
name: small
engine: {kind: fake}
space:
  parameters:
    steps: {flag: steps, int: [1, 4]}
workload: {prompts: {builtin: mixed}}
objective: {maximize: output_tokens_per_s}
"""


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_study_loads_and_its_space_can_be_listed(path: Path) -> None:
    loaded = load_study(path)
    assert loaded.config.name.startswith(path.stem)
    points = list(build_space(loaded).points())
    assert points
    assert len({tuple(point.items()) for point in points}) == len(points)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_study_loads_without_a_warning(path: Path) -> None:
    assert load_study(path).warnings == ()


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_study_lists_all_its_problems(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts are in bad/NAME.txt."""
    monkeypatch.chdir(path.parent)
    with pytest.raises(ConfigError) as caught:
        load_study(Path(path.name))
    lines = [str(problem) for problem in caught.value.problems]
    assert "\n".join([*lines, str(caught.value)]) + "\n" == path.with_suffix(".txt").read_text()


def test_fifteen_mistakes_are_fifteen_problems_with_line_and_column() -> None:
    problems = problems_of(CONFIGS / "bad" / "fifteen.yaml")
    assert {(p.line, p.column): p.path for p in problems} == FIFTEEN
    assert len(problems) == 15
    assert all(problem.hint for problem in problems if problem.path != "name")


def test_problems_come_in_the_order_of_the_file() -> None:
    problems = problems_of(CONFIGS / "bad" / "fifteen.yaml")
    assert [p.line for p in problems] == sorted(p.line for p in problems)


def test_a_problem_in_an_included_file_names_that_file() -> None:
    problems = problems_of(CONFIGS / "bad" / "includes.yaml")
    inside = [p for p in problems if p.file.endswith("spaces/b.yaml")]
    assert [(p.line, p.column, p.path) for p in inside] == [
        (2, 3, "parameters.steps"),
        (3, 31, "parameters.topk.choices"),
        (4, 1, "constraint"),
    ]


def test_a_missing_file_is_one_problem_with_a_similar_name(tmp_path: Path) -> None:
    study(tmp_path, SMALL)
    (problem,) = problems_of(tmp_path / "studdy.yaml")
    assert problem.message == "must be a readable file, got no such file or directory"
    assert problem.hint == f"Did you mean {tmp_path / 'study.yaml'}?"
    assert problems_of(tmp_path)[0].message == "must be a readable file, got is a directory"


def test_relative_paths_are_relative_to_the_study_file() -> None:
    good = CONFIGS / "good"
    llamacpp = load_study(good / "llamacpp.yaml").config
    assert llamacpp.engine.executable == str((good / "bin/llama-server").resolve())
    assert llamacpp.engine.model == str((CONFIGS / "models/model.gguf").resolve())
    sglang = load_study(good / "sglang.yaml").config
    assert sglang.engine.model == "/models/target"
    assert sglang.engine.draft_model == str((good / "draft").resolve())
    assert sglang.workload.prompts.file == str((good / "prompts.jsonl").resolve())
    assert sglang.workload.load[4].trace == str((good / "trace.jsonl").resolve())
    assert sglang.space.include == [str((good / "spaces/nccl.yaml").resolve())]
    vllm = load_study(good / "vllm.yaml").config
    assert vllm.engine.model == "org/model"


def test_included_parameters_come_first() -> None:
    loaded = load_study(CONFIGS / "good" / "sglang.yaml")
    assert list(loaded.parameters) == [
        "nccl_proto",
        "nccl_buffer",
        "steps",
        "topk",
        "draft_tokens",
    ]
    assert loaded.constraints == ("draft_tokens - 1 <= topk + (steps - 1) * topk ** 2",)
    assert [path.name for path in loaded.included] == ["nccl.yaml"]
    assert build_space(loaded).start[0] == {
        "nccl_proto": "unset",
        "nccl_buffer": "unset",
        "steps": 3,
        "topk": 1,
    }


def test_the_digest_ignores_comments_notes_and_the_folder(tmp_path: Path) -> None:
    one = load_study(study(tmp_path, SMALL)).digest
    commented = SMALL.replace("steps: {flag", "# why\n    steps: {note: why, flag")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert load_study(study(elsewhere, commented + "note: another\n")).digest == one
    assert load_study(study(tmp_path, SMALL.replace("[1, 4]", "[1, 5]"))).digest != one
    assert load_study(study(tmp_path, SMALL + "search: {seed: 8}\n")).digest != one


def test_the_digest_covers_included_files(tmp_path: Path) -> None:
    shutil.copytree(CONFIGS / "good", tmp_path / "good")
    before = load_study(tmp_path / "good" / "sglang.yaml").digest
    assert before == load_study(CONFIGS / "good" / "sglang.yaml").digest
    spaces = tmp_path / "good" / "spaces" / "nccl.yaml"
    spaces.write_text(spaces.read_text().replace("[unset, LL, Simple]", "[unset, LL]"))
    assert load_study(tmp_path / "good" / "sglang.yaml").digest != before


def test_numbers_of_the_environment_become_text() -> None:
    engine = load_study(CONFIGS / "good" / "sglang.yaml").config.engine
    assert engine.env == {"OMP_NUM_THREADS": "8", "NCCL_DEBUG": None}


def test_booleans_stay_booleans_and_anchors_are_followed(tmp_path: Path) -> None:
    text = SMALL.replace(
        "{kind: fake}", "{kind: fake, args: {a: true, b: 'on', c: [x, 1]}}"
    ).replace("{prompts: {builtin: mixed}}", "&w {prompts: {builtin: mixed}}")
    loaded = load_study(study(tmp_path, text))
    assert loaded.config.engine.args == {"a": True, "b": "on", "c": ["x", 1]}


def test_a_loaded_parameter_keeps_its_kind() -> None:
    parameters = load_study(CONFIGS / "good" / "vllm.yaml").parameters
    assert {name: config.kind for name, config in parameters.items()} == {
        "tokens": "int",
        "p_min": "float",
    }
    assert parameters["p_min"].values() == (0.0, 0.3, 0.6, 0.9)
    assert isinstance(parameters["tokens"], ParameterConfig)
