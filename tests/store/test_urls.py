"""What a storage URL may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import StoreError
from tuner.store.urls import parse_url


def test_a_relative_file_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = parse_url("sqlite:///results/x/study.db")
    assert url.path == tmp_path / "results/x/study.db"
    assert url.shown == f"sqlite:///{tmp_path}/results/x/study.db"


@pytest.mark.parametrize("name", ["a{b}.db", "a%20b.db", "a b?.db", "ünïcode.db", "a#b.db"])
def test_odd_names_are_taken_as_they_are(tmp_path: Path, name: str) -> None:
    assert parse_url(f"sqlite:///{tmp_path}/{name}").path == tmp_path / name


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:p@h/d",
        "postgres://u:p@h/d",
        "postgresql+psycopg://u:p@h/d",
        "postgresql+psycopg2://u:p@h/d",
    ],
)
def test_postgresql_means_psycopg_3_and_hides_its_password(text: str) -> None:
    url = parse_url(text)
    assert not url.is_sqlite
    assert url.text == "postgresql+psycopg://u:p@h/d"
    assert url.shown == "postgresql+psycopg://u:***@h/d"
    assert url.has_password


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("results/x.db", "must be a URL", "sqlite:///results/x.db"),
        ("sqlite://", "in-memory", "sqlite:///results"),
        ("sqlite:///:memory:", "in-memory", "would be lost"),
        ("mysql://u@h/d", "must be SQLite or PostgreSQL", "Write sqlite"),
        ("sqlite:////x.db?timeout=3", "a path alone", "question mark"),
        ("://x", "must be a URL", ""),
    ],
)
def test_what_cannot_work_is_explained(text: str, said: str, hint: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        parse_url(text)
    assert hint in caught.value.hint


def test_a_bare_path_is_answered_with_its_absolute_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as caught:
        parse_url("typo.db")
    assert str(tmp_path / "typo.db") in caught.value.hint
