"""Secrets stay out of what is stored for people to read."""

from __future__ import annotations

import time

import pytest

from tuner.redaction import (
    hide_in_text,
    hide_value,
    is_secret,
    secret_values,
    without_secrets,
)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("api-key", True),
        ("admin_api_key", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("PGPASSWORD", True),
        ("max_tokens", False),
        ("output_tokens", False),
        ("speculative-num-draft-tokens", False),
        ("draft_tokens", False),
        ("output_tokens_per_s", False),
        ("NCCL_ALGO", False),
        ("speculative-token-map", False),
        ("tokenizer-path", False),
        ("skip-tokenizer-init", False),
        ("eos-token", False),
        ("hf-token", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("NCCL_TUNER_CONFIG", False),
        ("model", False),
    ],
)
def test_secrets_are_told_by_their_names(name: str, secret: bool) -> None:
    assert is_secret(name) == secret


def test_a_hidden_value_shows_only_that_it_changed() -> None:
    one, other = hide_value("HF_TOKEN", "hf_abc"), hide_value("HF_TOKEN", "hf_abd")
    assert one != other
    assert "abc" not in one
    assert hide_value("HF_TOKEN", None) is None
    assert hide_value("steps", 3) == 3


def test_a_study_text_keeps_everything_else() -> None:
    text = """\
name: demo
engine:
  args: {api-key: "s3cret", max-tokens: 5}
  env: {HF_TOKEN: hf_abc, NCCL_ALGO: Ring}
  # a comment about HF_TOKEN
workload: {output_tokens: {max: 512}}
storage: postgresql+psycopg://u:pass@h/d
"""
    hidden = hide_in_text(text)
    for secret in ("s3cret", "hf_abc", "pass@"):
        assert secret not in hidden
    assert "HF_TOKEN: ***, NCCL_ALGO: Ring}" in hidden
    assert "max-tokens: 5}" in hidden
    assert "{output_tokens: {max: 512}}" in hidden
    assert "postgresql+psycopg://u:***@h/d" in hidden
    assert hidden.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "text",
    [
        'HF_TOKEN: "hf,abc}d#e"',
        "HF_TOKEN: 'hf, it''s'",
        'HF_TOKEN: "hf \\" abc"',
        "HF_TOKEN:\n    hf_abc",
        "'HF_TOKEN' : hf_abc",
        "-postgresql://u:hf_abc@h/d",
        "see (redis://:hf_abc@h/0)",
    ],
)
def test_a_secret_is_hidden_to_its_last_letter(text: str) -> None:
    hidden = hide_in_text(f"a: 1\n{text}\nb: 2\n")
    assert "***" in hidden
    assert not any(part in hidden for part in ("hf", "abc", "it", "d#e"))
    assert hidden.startswith("a: 1\n")
    assert hidden.endswith("\nb: 2\n")


def test_a_known_secret_is_hidden_wherever_it_stands() -> None:
    text = "x: &t hf_abc\nenv: {HF_TOKEN: *t, OTHER: >-\n  hf_abc\n}"
    hidden = hide_in_text(text, ["hf_abc"])
    assert "hf_abc" not in hidden
    assert hidden.count("***") == 3


@pytest.mark.parametrize("piece", ["x", "x-", "TOKEN", "x://", "x:", "key ", "'", '"', "TOKEN: '"])
def test_the_time_to_hide_grows_with_the_text_not_its_square(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    hidden = hide_in_text(text)  # a square of it would take an hour
    assert len(hidden) <= len(text) + 3 * text.count("TOKEN")


def test_secret_values_long_enough_to_be_found_in_a_text() -> None:
    environ = {"HF_TOKEN": "hf_abcdef", "API_KEY": "short", "PATH": "/usr/bin:/bin"}
    assert secret_values(environ) == ["hf_abcdef"]
    assert without_secrets(environ) == {"PATH": "/usr/bin:/bin"}


def test_a_very_long_word_is_read_in_no_time() -> None:
    text = f"A: {'x' * 300_000}\nB: {'a.b-' * 50_000}\nHF_TOKEN: hf_abcdefgh\n"
    began = time.process_time()
    assert hide_in_text(text) == text.replace("hf_abcdefgh", "***")
    assert time.process_time() - began < 5
