"""Owns counting the tokens of an answer here, for servers that report no usage.

Only with the model's own tokenizer: a guess from characters is no count. It needs the `tokenizers`
package, which every installation of SGLang or vLLM has, and the model as a folder of files.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tuner.measure.exchange import CountTokens

_FILE = "tokenizer.json"


def local_counter(folders: Iterable[str]) -> CountTokens | None:
    """Counts tokens as the first of these model folders that has a tokenizer does.

    None when none has one, or the package to read it is missing. The tokenizer is read at the
    first count: servers that report usage never need it.
    """
    files = [Path(folder) / _FILE for folder in folders]
    file = next((file for file in files if file.is_file()), None)
    if file is None or importlib.util.find_spec("tokenizers") is None:
        return None

    def count(text: str) -> int:
        return len(_tokenizer(str(file)).encode(text, add_special_tokens=False).ids)

    return count


@cache
def _tokenizer(file: str) -> Any:
    return importlib.import_module("tokenizers").Tokenizer.from_file(file)
