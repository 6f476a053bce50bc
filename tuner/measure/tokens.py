"""Owns taking an answer apart into tokens here: for servers that report no usage, and for lookups
that are played on known texts.

Only with the model's own tokenizer: a guess from characters is no count. It needs the `tokenizers`
package, which every installation of SGLang or vLLM has, and the model as a folder of files.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from tuner.measure.exchange import CountTokens

_FILE = "tokenizer.json"
_FLAGS = ("tokenizer-path", "tokenizer", "model-path", "model")
"""Where the engines' command lines name a folder that may hold the model's tokenizer."""

SplitTokens: TypeAlias = Callable[[str], list[str]]
"""Text to its tokens, each as a name."""


def tokenizer_folders(flags: Mapping[str, object]) -> list[str]:
    """Where a server's tokenizer may lie, by the flags that name it or the model."""
    return [str(flags[name]) for name in _FLAGS if flags.get(name)]


def local_counter(folders: Iterable[str]) -> CountTokens | None:
    """Counts tokens as the first of these model folders that has a tokenizer does.

    None when none has one, or the package to read it is missing. The tokenizer is read at the
    first count: servers that report usage never need it.
    """
    split = local_splitter(folders)
    return None if split is None else lambda text: len(split(text))


def local_splitter(folders: Iterable[str]) -> SplitTokens | None:
    """Splits text into tokens as the first of these model folders that has a tokenizer does; None
    as above."""
    files = [Path(folder) / _FILE for folder in folders]
    file = next((file for file in files if file.is_file()), None)
    if file is None or importlib.util.find_spec("tokenizers") is None:
        return None

    def split(text: str) -> list[str]:
        found = _tokenizer(str(file)).encode(text, add_special_tokens=False).ids
        return [str(number) for number in found]

    return split


@cache
def _tokenizer(file: str) -> Any:
    return importlib.import_module("tokenizers").Tokenizer.from_file(file)
