"""Draft folders made from figures: config.json and safetensors headers without the weights."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HIDDEN, INNER, HEADS, VOCABULARY, DRAFT_VOCABULARY = 7168, 18432, 64, 163_840, 32_000
HEAD = HIDDEN // HEADS

Shapes = dict[str, tuple[int, ...]]


def eagle3_config(**changes: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "num_hidden_layers": 1, "vocab_size": VOCABULARY,
        "draft_vocab_size": DRAFT_VOCABULARY, "max_position_embeddings": 262_144,
        "rms_norm_eps": 1e-5, "rope_theta": 50_000.0,
        "eagle_config": {
            "use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [2, 30, 58],
        },
    }  # fmt: skip
    merged = {**config, **changes}
    return {name: value for name, value in merged.items() if value != "absent"}


def eagle3_shapes(states: int = 3, **changes: Any) -> Shapes:
    shapes: dict[str, Any] = {
        "fc.weight": (HIDDEN, states * HIDDEN),
        "midlayer.self_attn.q_proj.weight": (HEADS * HEAD, 2 * HIDDEN),
        "midlayer.self_attn.k_proj.weight": (HEADS * HEAD, 2 * HIDDEN),
        "midlayer.self_attn.v_proj.weight": (HEADS * HEAD, 2 * HIDDEN),
        "midlayer.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD),
        "midlayer.mlp.gate_proj.weight": (INNER, HIDDEN),
        "midlayer.mlp.up_proj.weight": (INNER, HIDDEN),
        "midlayer.mlp.down_proj.weight": (HIDDEN, INNER),
        "midlayer.hidden_norm.weight": (HIDDEN,),
        "midlayer.input_layernorm.weight": (HIDDEN,),
        "midlayer.post_attention_layernorm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (DRAFT_VOCABULARY, HIDDEN),
        "embed_tokens.weight": (VOCABULARY, HIDDEN),
    }
    merged = {**shapes, **{name.replace("__", "."): value for name, value in changes.items()}}
    return {name: shape for name, shape in merged.items() if shape is not None}


def write_safetensors(path: Path, shapes: Shapes, values: Mapping[str, Any] | None = None) -> None:
    """A file whose header describes everything; only `values` have bytes, at the front; the
    rest is a hole."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, array in (values or {}).items():
        raw = np.asarray(array, dtype="<i8").tobytes()
        header[name] = {
            "dtype": "I64", "shape": list(np.shape(array)),
            "data_offsets": [len(body), len(body) + len(raw)],
        }  # fmt: skip
        body += raw
    end = len(body)
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {
            "dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size],
        }  # fmt: skip
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    os.truncate(path, 8 + len(text) + end)  # a hole: no disk is used


def good_map() -> Any:
    """Differences that lead to ascending ids of the whole vocabulary, in runs as real ones do."""
    ids = np.sort(np.random.default_rng(0).choice(VOCABULARY, DRAFT_VOCABULARY, replace=False))
    return ids - np.arange(DRAFT_VOCABULARY)


@pytest.fixture
def draft(tmp_path: Path) -> Callable[..., str]:
    """Write a draft folder and give its path."""

    def make(
        config: dict[str, Any] | None = None,
        shapes: Shapes | None = None,
        d2t: Any = "good",
        name: str = "draft",
    ) -> str:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config or eagle3_config()))
        values = {} if d2t is None else {"d2t": good_map() if isinstance(d2t, str) else d2t}
        write_safetensors(folder / "model.safetensors", shapes or eagle3_shapes(), values)
        return str(folder)

    return make


@pytest.fixture
def target(tmp_path: Path) -> Callable[..., str]:
    """Write a target folder (configuration only) and give its path."""

    def make(**changes: Any) -> str:
        folder = tmp_path / "target"
        folder.mkdir()
        config = {
            "architectures": ["KimiK25ForConditionalGeneration"],
            "text_config": {
                "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": HIDDEN,
                "num_hidden_layers": 61, "vocab_size": VOCABULARY,
                "max_position_embeddings": 262_144, "rms_norm_eps": 1e-5, **changes,
            },
        }  # fmt: skip
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)

    return make


@pytest.fixture
def config() -> Callable[..., dict[str, Any]]:
    """A right configuration with changes; the text `absent` removes a setting."""
    return eagle3_config


@pytest.fixture
def shapes() -> Callable[..., Shapes]:
    """Right tensor shapes with changes; None removes a tensor, `__` stands for a dot."""
    return eagle3_shapes
