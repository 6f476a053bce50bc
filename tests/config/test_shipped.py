"""`shipped:NAME` in an include: the space that comes with the tuner, from any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config.loader import load_space, load_study
from tuner.config.shipped import SPACES, STUDIES, include_path, shipped_folder
from tuner.errors import ConfigError

STUDY = """\
name: demo
engine: {{kind: sglang, model: /models/m, draft_model: /models/d, args: {{tp-size: 2}}}}
space:
  include: [{include}]
workload: {{prompts: {{builtin: mixed}}}}
objective: {{maximize: output_tokens_per_s}}
"""


def write(folder: Path, include: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(STUDY.format(include=include))
    return path


def test_a_shipped_space_is_found_from_anywhere(tmp_path: Path) -> None:
    includes = "shipped:sglang-eagle3.yaml, shipped:nccl-pcie.yaml"
    loaded = load_study(write(tmp_path, includes))
    assert list(loaded.parameters)[:3] == ["algorithm", "steps", "topk"]
    assert "nccl_algo" in loaded.parameters
    folder = shipped_folder(SPACES)
    assert loaded.included == (folder / "sglang-eagle3.yaml", folder / "nccl-pcie.yaml")
    assert loaded.config.space.include[0] == str(folder / "sglang-eagle3.yaml")


def test_a_misspelt_shipped_space_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_study(write(tmp_path, "shipped:sglang-eagle.yaml"))
    hints = {problem.hint for problem in caught.value.problems}
    assert "Did you mean shipped:sglang-eagle3.yaml?" in hints


def test_other_names_are_relative_to_the_file() -> None:
    assert include_path("spaces/a.yaml", Path("/studies")) == Path("/studies/spaces/a.yaml")


@pytest.mark.parametrize("kind", [SPACES, STUDIES])
def test_the_shipped_folders_hold_yaml(kind: str) -> None:
    assert list(shipped_folder(kind).glob("*.yaml"))


def test_a_space_file_alone() -> None:
    parameters = load_space(shipped_folder(SPACES) / "nccl-pcie.yaml")
    assert [config.env for config in parameters.values()] == [
        "NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_LEVEL",
    ]  # fmt: skip


def test_a_broken_space_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("parameters: {a: {flag: a, choices: [1, 1]}}\n")
    with pytest.raises(ConfigError, match="1 error"):
        load_space(path)
