"""Secrets stay out of what is stored for people to read."""

from __future__ import annotations

import pytest

from tuner.store.redaction import hide_in_text, hide_value, is_secret


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
