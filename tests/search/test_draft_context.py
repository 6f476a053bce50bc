"""Prompts longer than the draft's context are refused before anything is launched."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tuner.config.loader import LoadedStudy, load_study
from tuner.errors import ConfigError
from tuner.measure.prompts import Workload, build_workload
from tuner.search.draft_context import (
    check_draft_context,
    context_of,
    draft_context,
    longest_request,
    require_draft_context,
)

WORDS = "the library opens at nine and closes when the last reader has gone home "


@pytest.fixture
def study(tmp_path: Path, study_yaml: Callable[..., str]) -> Callable[..., tuple[Any, Any]]:
    """A study whose longest prompt has so many bytes, with a draft of so much context."""

    def make(context: int | None, size: int) -> tuple[LoadedStudy, Workload]:
        draft = tmp_path / "draft"
        draft.mkdir(exist_ok=True)
        config = {} if context is None else {"max_position_embeddings": context}
        (draft / "config.json").write_text(json.dumps(config))
        lines = [f"Question {n}: {WORDS * 3}" for n in range(11)]
        lines.append((WORDS * (size // len(WORDS) + 1))[:size])
        rows = [json.dumps({"id": f"q{n}", "prompt": text}) for n, text in enumerate(lines)]
        (tmp_path / "prompts.jsonl").write_text("\n".join(rows))
        text = study_yaml(
            engine={"draft_model": str(draft)},
            workload={"prompts": {"file": "prompts.jsonl"}, "output_tokens": {"max": 100}},
        )
        (tmp_path / "study.yaml").write_text(text)
        loaded = load_study(tmp_path / "study.yaml")
        return loaded, build_workload(loaded.config.workload, 7)

    return make


def test_what_cannot_fit_is_refused_with_its_place(study: Callable[..., Any]) -> None:
    loaded, workload = study(1024, 6000)
    (problem,) = check_draft_context(loaded, workload).problems
    lines = loaded.path.read_text().splitlines()
    assert lines[problem.line - 1].strip() == "prompts:"
    assert problem.path == "workload.prompts"
    assert problem.message == (
        "prompts with their answers must fit into the draft's context of 1,024 tokens, got at "
        "least 1,300 for prompt q11 (100 of them for the answer; estimated from 6,000 bytes of "
        "text, 3 to 5 a token: there is no tokenizer here)"
    )
    assert "draft with a longer context" in problem.hint
    with pytest.raises(ConfigError):
        require_draft_context(loaded, workload)


def test_what_may_not_fit_is_warned_of(study: Callable[..., Any]) -> None:
    (warning,) = require_draft_context(*study(1024, 4000))
    assert "got up to 1,433 for prompt q11" in warning


def test_what_fits_is_not_mentioned(study: Callable[..., Any]) -> None:
    assert require_draft_context(*study(4096, 6000)) == ()
    assert require_draft_context(*study(None, 60000)) == (), "the draft does not say"


def test_a_tokenizer_decides_alone(study: Callable[..., Any]) -> None:
    loaded, workload = study(1024, 6000)
    assert check_draft_context(loaded, workload, lambda text: 924).problems == ()
    found = check_draft_context(loaded, workload, lambda text: 925)
    assert "at least 1,025" in found.problems[0].message
    assert "counted by the model's tokenizer" in found.problems[0].message
    assert longest_request(workload, len).least == 6100


@pytest.mark.parametrize(
    ("config", "context"),
    [
        ({"max_position_embeddings": 2048}, 2048),
        ({"text_config": {"max_position_embeddings": 512}}, 512),
        ({"max_position_embeddings": 2048, "rope_scaling": {"factor": 4.0}}, 8192),
        (
            {
                "max_position_embeddings": 8192,
                "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 2048},
            },
            8192,
        ),
        ({"max_position_embeddings": 2048, "rope_scaling": {"factor": "x"}}, 2048),
        ({"max_position_embeddings": True}, None),
        ({"max_position_embeddings": 0}, None),
        ({}, None),
    ],
)
def test_the_context_of_a_draft(config: dict[str, Any], context: int | None) -> None:
    from tuner.drafts.checkpoint import Checkpoint

    assert context_of(Checkpoint(Path(), config)) == context


def test_a_gguf_draft_says_its_context(tmp_path: Path) -> None:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 2)
    kind = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    length = text("llama.context_length") + struct.pack("<II", 4, 2048)
    (tmp_path / "draft.gguf").write_bytes(header + kind + length)
    assert draft_context(str(tmp_path / "draft.gguf")) == 2048
    (tmp_path / "draft.gguf").write_bytes(header)
    assert draft_context(str(tmp_path / "draft.gguf")) is None, "cut off: doctor says so"


def test_a_draft_that_is_not_here_says_nothing() -> None:
    assert draft_context(None) is None
    assert draft_context("somebody/elses-draft") is None


def test_the_models_own_tokenizer_counts(
    study: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one prompt has any tokens, and it is not the one with most bytes."""

    def encode(text: str, *, add_special_tokens: bool) -> Any:
        assert not add_special_tokens
        return SimpleNamespace(ids=[1] * (1000 * text.count("Question 3:")))

    tokenizer = SimpleNamespace(encode=encode)
    package = ModuleType("tokenizers")
    package.__spec__ = ModuleSpec("tokenizers", None)
    package.Tokenizer = SimpleNamespace(from_file=lambda file: tokenizer)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tokenizers", package)
    (tmp_path / "tokenizer.json").write_text("{}")
    loaded, workload = study(1024, 6000)
    engine = loaded.config.engine.model_copy(update={"model": str(tmp_path)})
    config = loaded.config.model_copy(update={"engine": engine})
    found = check_draft_context(replace(loaded, config=config), workload)
    assert "got at least 1,100 for prompt q3 " in found.problems[0].message


def test_check_and_run_refuse_alike(study: Callable[..., Any], tuner: Callable[..., Any]) -> None:
    loaded, _ = study(1024, 6000)
    for command in ("check", "run"):
        found = tuner(command, str(loaded.path))
        assert found.exit_code == 2
        said = found.stdout + found.stderr
        assert "workload.prompts: prompts with their answers must fit" in said
        assert "nothing was launched" in said
