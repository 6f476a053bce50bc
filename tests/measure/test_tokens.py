"""Tokens are counted with the model's own tokenizer, or not at all."""

from __future__ import annotations

import importlib.machinery
import json
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tuner.measure.tokens import local_counter, local_splitter, tokenizer_folders


class WordTokenizer:
    """Stands for the `tokenizers` package: a token per word, as often as the file says."""

    loaded: ClassVar[list[str]] = []

    def __init__(self, per_word: int) -> None:
        self.per_word = per_word

    @classmethod
    def from_file(cls, file: str) -> WordTokenizer:
        cls.loaded.append(file)
        return cls(json.loads(Path(file).read_text())["per_word"])

    def encode(self, text: str, *, add_special_tokens: bool) -> Any:
        extra = [0] if add_special_tokens else []
        return types.SimpleNamespace(ids=extra + list(range(self.per_word * len(text.split()))))


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> type[WordTokenizer]:
    module = types.ModuleType("tokenizers")
    module.__spec__ = importlib.machinery.ModuleSpec("tokenizers", None)
    module.Tokenizer = WordTokenizer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tokenizers", module)
    monkeypatch.setattr(WordTokenizer, "loaded", [])
    return WordTokenizer


def model(folder: Path, per_word: int) -> str:
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps({"per_word": per_word}))
    return str(folder)


def test_the_first_folder_with_a_tokenizer_counts(
    tmp_path: Path, package: type[WordTokenizer]
) -> None:
    folders = [
        str(tmp_path),
        "org/name-on-a-hub",
        model(tmp_path / "a", 2),
        model(tmp_path / "b", 5),
    ]
    count = local_counter(folders)
    assert count is not None
    assert package.loaded == []
    assert [count("one two three"), count(""), count("four")] == [6, 0, 2]
    assert package.loaded == [str(tmp_path / "a" / "tokenizer.json")]


def test_no_tokenizer_no_count(tmp_path: Path, package: type[WordTokenizer]) -> None:
    assert local_counter([]) is None
    assert local_counter([str(tmp_path), "org/name-on-a-hub"]) is None


def test_no_package_no_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert local_counter([model(tmp_path / "a", 1)]) is None


def test_text_is_split_into_the_models_own_tokens(
    tmp_path: Path, package: type[WordTokenizer]
) -> None:
    split = local_splitter([model(tmp_path / "a", 1)])
    assert split is not None
    assert split("one two three") == ["0", "1", "2"]
    assert local_splitter([str(tmp_path)]) is None


def test_the_tokenizers_own_flag_comes_before_the_models() -> None:
    flags = {"model": "m", "port": 1, "tokenizer": "t", "model-path": ""}
    assert tokenizer_folders(flags) == ["t", "m"]
    assert tokenizer_folders({}) == []
