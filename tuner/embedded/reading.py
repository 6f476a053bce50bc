"""Owns how one flag's text becomes a value; every reader raises ValueError in plain words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

SPECULATIVE_TYPES = (
    "none",
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
)
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


class Member(NamedTuple):
    """A member of one of the engine module's enums, by name."""

    enum: str
    name: str


def whole(text: str) -> int:
    """An integer."""
    try:
        return int(text, 10)
    except ValueError:
        raise ValueError(f"must be an integer, got '{text}'") from None


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"must be a number, got '{text}'")
    return value


def within(low: int, high: int) -> Callable[[str], int]:
    """A reader of integers in a closed range."""

    def read(text: str) -> int:
        value = whole(text)
        if not low <= value <= high:
            raise ValueError(f"must be in {low} to {high}, got {value}")
        return value

    return read


def gpu_layers(text: str) -> int:
    """A layer count, `auto` (-1) or `all` (-2)."""
    return {"auto": -1, "all": -2}[text] if text in {"auto", "all"} else whole(text)


def seed(text: str) -> int:
    """A 32-bit seed; -1 is a random one."""
    return within(-1, 2**32 - 1)(text) % 2**32


def words(text: str) -> list[str]:
    """Comma-separated words."""
    return [part for part in text.split(",") if part]


def numbers(text: str) -> list[float]:
    """Comma-separated numbers."""
    return [number(part) for part in text.split(",")]


def enum(name: str, prefix: str, members: Mapping[str, str]) -> Callable[[str], Member]:
    """A reader of one word among the keys of `members`."""

    def read(text: str) -> Member:
        if text not in members:
            raise ValueError(f"unknown value: '{text}', must be one of {', '.join(members)}")
        return Member(name, prefix + members[text])

    return read


def speculative_types(text: str) -> list[Member]:
    """Comma-separated speculative types."""
    return [_speculative_type(word) for word in words(text)]


_speculative_type = enum(
    "common_speculative_type",
    "COMMON_SPECULATIVE_TYPE_",
    {name: name.replace("-", "_").upper() for name in SPECULATIVE_TYPES},
)
cache_type = enum("ggml_type", "GGML_TYPE_", {name: name.upper() for name in CACHE_TYPES})
flash_attention = enum(
    "llama_flash_attn_type",
    "LLAMA_FLASH_ATTN_TYPE_",
    {"auto": "AUTO", "on": "ENABLED", "off": "DISABLED"},
)
LOAD_MODES = {
    "auto": "AUTO",
    "none": "NONE",
    "mmap": "MMAP",
    "mlock": "MLOCK",
    "mmap+mlock": "MMAP_MLOCK",
    "dio": "DIRECT_IO",
}
load_mode = enum("llama_load_mode", "LLAMA_LOAD_MODE_", LOAD_MODES)
numa = enum(
    "ggml_numa_strategy",
    "GGML_NUMA_STRATEGY_",
    {"distribute": "DISTRIBUTE", "isolate": "ISOLATE", "numactl": "NUMACTL"},
)
reasoning_format = enum(
    "common_reasoning_format",
    "COMMON_REASONING_FORMAT_",
    {"none": "NONE", "auto": "AUTO", "deepseek": "DEEPSEEK", "deepseek-legacy": "DEEPSEEK_LEGACY"},
)
split_mode = enum(
    "llama_split_mode",
    "LLAMA_SPLIT_MODE_",
    {"none": "NONE", "layer": "LAYER", "row": "ROW", "tensor": "TENSOR"},
)


def draft_sampling(text: str) -> bool:
    """True for `probabilistic`, False for `greedy`."""
    if text not in {"greedy", "probabilistic"}:
        raise ValueError(f"unknown value: '{text}', must be one of greedy, probabilistic")
    return text == "probabilistic"


def on_off(text: str) -> bool:
    """`on` or `off`, in any of llama-server's spellings."""
    word = text.lower()
    if word in {"on", "1", "true", "enabled"}:
        return True
    if word in {"off", "0", "false", "disabled"}:
        return False
    raise ValueError(f"unknown value: '{text}', must be on or off")
