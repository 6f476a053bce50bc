"""Secrets may not stand where every user of the machine sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config.loader import load_study
from tuner.errors import ConfigError

STUDY = """\
name: demo
engine: {{kind: {engine}, model: m, args: {{{flag}: abc}}}}
space: {{parameters: {{steps: {{flag: spec-steps, choices: [1, 2]}}}}}}
workload: {{prompts: {{builtin: mixed}}}}
objective: {{maximize: output_tokens_per_s}}
"""


@pytest.mark.parametrize(
    ("engine", "flag"),
    [("sglang", "api-key"), ("sglang", "admin-api-key"), ("vllm", "api-key"),
     ("llamacpp", "hf-token"), ("sglang", "ssl-keyfile-password")],
)  # fmt: skip
def test_a_flag_that_holds_a_secret_is_refused(tmp_path: Path, engine: str, flag: str) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(STUDY.format(engine=engine, flag=flag))
    with pytest.raises(ConfigError) as caught:
        load_study(path)
    problem = next(p for p in caught.value.problems if p.path == f"engine.args.{flag}")
    assert "every user of the machine sees it" in problem.message
    assert "abc" not in str(problem)
    assert (problem.line, problem.hint.startswith("Use the engine's variable")) == (2, True)


@pytest.mark.parametrize("flag", ["speculative-token-map", "tokenizer-path", "max-total-tokens"])
def test_tokens_of_text_are_no_secrets(tmp_path: Path, flag: str) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(STUDY.format(engine="sglang", flag=flag))
    assert load_study(path).config.engine.args == {flag: "abc"}
