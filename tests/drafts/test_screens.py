"""The screens of `tuner draft`, as users see them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tuner.cli.app import build_app


def run(*args: str) -> str:
    result = CliRunner().invoke(build_app(), list(args))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_inspect_names_the_founding_fault(draft, target, config, shapes) -> None:
    wrong = config(eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2, 30, 58]})
    text = run("draft", "inspect", draft(wrong, shapes(4)), "--target", target())
    assert "SGLang captures the outputs of layers embedding, 1, 29, 57" in text
    assert "warning       id 0 captures the embedding's output" in text
    assert "lm_head.weight: 32,000 × 7,168 = 229 M" in text


def test_inspect_json_is_one_document(draft) -> None:
    document = json.loads(run("draft", "inspect", draft(), "--json"))
    assert document["method"] == "EAGLE3"
    assert document["findings"] == []


def test_compare_ends_with_what_can_explain_the_gap(draft) -> None:
    text = run(
        "draft", "compare", draft(), "AQ-MedAI/Kimi-K2-Instruct-eagle3",
        "--samples", "37000", "--acceptance", "2.1",
    )  # fmt: skip
    assert text.splitlines()[-1].startswith("38 times more data: 37.0 K against 1.40 M.")
    document = json.loads(
        run("draft", "compare", draft(name="b"), "AQ-MedAI/Kimi-K2-Instruct-eagle3", "--json")
    )
    assert {row["name"] for row in document["rows"]} >= {"hidden_size", "training samples"}


def test_a_folder_that_is_none_is_refused_with_exit_2() -> None:
    result = CliRunner().invoke(build_app(), ["draft", "inspect", "/nowhere/at/all"])
    assert result.exit_code == 2
    assert "must be a folder with config.json" in result.stderr


@pytest.mark.parametrize("command", ["inspect", "compare"])
def test_help_holds_an_example(command: str) -> None:
    assert "Example: tuner draft" in run("draft", command, "--help")
