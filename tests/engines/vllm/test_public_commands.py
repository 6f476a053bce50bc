"""Command lines that people posted: read, made canonical, and started again as the same server."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.cli.command_line import read_command
from tuner.engines.base import EngineFacts
from tuner.engines.vllm import VllmEngine


@dataclass(frozen=True, slots=True)
class Posted:
    source: str
    text: str
    spec: dict[str, Any] | None
    flags: dict[str, Any]


POSTED = (
    Posted(
        "vllm-project/vllm issue 26328",
        "vllm serve /models/gpt-oss-120b --gpu-memory-utilization 0.92 --trust-remote-code "
        "--max-model-len 65536 --served-model-name gpt-oss-120b --enable-auto-tool-choice "
        "--tool-call-parser openai --speculative-config '{\"model\": "
        '"nvidia/gpt-oss-120b-Eagle3", "num_speculative_tokens": 3, "method":"eagle3", '
        "\"draft_tensor_parallel_size\":1}' --tensor-parallel-size 2",
        {"method": "eagle3", "model": "nvidia/gpt-oss-120b-Eagle3", "num_speculative_tokens": 3,
         "draft_tensor_parallel_size": 1},
        {"max-model-len": 65536, "tensor-parallel-size": 2, "trust-remote-code": True},
    ),
    Posted(
        "vllm-project/vllm PR 42468",
        "vllm serve meta-llama/Llama-3.1-8B-Instruct \\\n  --dtype bfloat16 \\\n"
        "  --no-enable-prefix-caching \\\n  --trust-remote-code \\\n"
        '  --speculative-config \'{"method": "eagle3", "model": '
        '"RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3", "num_speculative_tokens": 2}\'',
        {"method": "eagle3", "model": "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3",
         "num_speculative_tokens": 2},
        {"enable-prefix-caching": False, "dtype": "bfloat16"},
    ),
    Posted(
        "vllm-project/recipes PR 427",
        "vllm serve mistralai/Mistral-Medium-3.5-128B --tensor-parallel-size 8 "
        "--tool-call-parser mistral --enable-auto-tool-choice --max_num_batched_tokens 16384 "
        "--max_num_seqs 128 --gpu_memory_utilization 0.8 --speculative_config "
        '\'{"model":"mistralai/Mistral-Medium-3.5-128B-EAGLE","num_speculative_tokens":3,'
        '"method":"eagle","max_model_len":"65536"}\'',
        {"method": "eagle", "model": "mistralai/Mistral-Medium-3.5-128B-EAGLE",
         "num_speculative_tokens": 3, "max_model_len": 65536},
        {"max-num-batched-tokens": 16384, "max-num-seqs": 128},
    ),
    Posted(
        "vllm-project/vllm PR 24049",
        "vllm serve /home/models/Qwen3-0.6B --speculative_config "
        '\'{"model": "/home/models/Qwen3-0.6B", "num_speculative_tokens": 5, '
        '"prompt_lookup_min": 2, "prompt_lookup_max": 5, "method": "ngram"}\' '
        "--enforce-eager -dp 8",
        {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2,
         "prompt_lookup_max": 5},
        {"data-parallel-size": 8, "enforce-eager": True},
    ),
    Posted(
        "vllm-project/vllm issue 38893",
        "vllm serve google/gemma-4-26B-A4B-it --tensor-parallel-size 2 --speculative-config "
        '\'{\n    "model": "RedHatAI/gemma-4-26B-A4B-it-speculator.eagle3",\n'
        '    "num_speculative_tokens": 3,\n    "method": "eagle3"\n  }\' --max-num-seqs 64',
        {"method": "eagle3", "model": "RedHatAI/gemma-4-26B-A4B-it-speculator.eagle3",
         "num_speculative_tokens": 3},
        {"max-num-seqs": 64},
    ),
    Posted(
        "the flags of vLLM 0.8, which 0.11 refuses",
        "python -m vllm.entrypoints.openai.api_server --model facebook/opt-6.7b --seed 42 -tp 1 "
        "--speculative-model [ngram] --num-speculative-tokens 5 --ngram-prompt-lookup-max 4",
        {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 4,
         "prompt_lookup_max": 4},
        {"seed": 42, "tensor-parallel-size": 1},
    ),
    Posted(
        "dotted fields, as the parser of vLLM takes them",
        "vllm serve deepseek-ai/DeepSeek-V3.2 -tp 8 --speculative-config.method deepseek_mtp "
        "--speculative-config.num_speculative_tokens 1",
        {"method": "mtp", "num_speculative_tokens": 1},
        {"tensor-parallel-size": 8},
    ),
)  # fmt: skip


def engine_of(make: Callable[..., VllmEngine], text: str) -> VllmEngine:
    flags = dict(read_command(text).flags)
    model = flags.pop("model")
    return make(model=model, args={name.replace("_", "-"): v for name, v in flags.items()})


@pytest.mark.parametrize("posted", POSTED, ids=lambda posted: posted.source)
def test_posted_command_lines(make: Callable[..., VllmEngine], posted: Posted) -> None:
    engine = engine_of(make, posted.text)
    args = engine.fixed_args()
    assert args.flags.get("speculative-config") == posted.spec
    assert {name: args.flags[name] for name in posted.flags} == posted.flags
    assert engine.violations(args, EngineFacts()) == []
    assert not engine.is_speculative(engine.without_speculation(args))
    _starts_again(make, engine, args)


def _starts_again(make: Callable[..., VllmEngine], engine: VllmEngine, args: ServerArgs) -> None:
    """What the command line starts is the same server when it is read again."""
    text = shlex.join(engine.command(args, 8000).argv)
    assert engine_of(make, text).fixed_args().digest == args.digest


def test_a_python_style_mapping_is_named(make: Callable[..., VllmEngine]) -> None:
    text = "vllm serve m --speculative-config \"{'method': 'ngram', 'prompt_lookup_max': 4}\""
    engine = engine_of(make, text)
    found = engine.violations(engine.fixed_args(), EngineFacts())
    assert [violation.rule for violation in found] == ["speculative-config"]
