"""What the vLLM tests share: an engine, spaces, and output recorded from vLLM 0.32.0 on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.config.engine import VllmConfig
from tuner.engines.vllm import VllmEngine
from tuner.space import Parameter, SearchSpace

LOGS = Path(__file__).parent / "logs"


@pytest.fixture
def log() -> Callable[[str], str]:
    return lambda name: (LOGS / name).read_text()


@pytest.fixture
def make() -> Callable[..., VllmEngine]:
    def engine(**fields: Any) -> VllmEngine:
        base = {"kind": "vllm", "model": "/models/target", "executable": "/opt/vllm/bin/vllm"}
        return VllmEngine(VllmConfig.model_validate({**base, **fields}))

    return engine


@pytest.fixture
def space() -> SearchSpace:
    def flag(name: str, path: str, *values: Any) -> Parameter:
        return Parameter(name, "categorical", values, flag=path)

    return SearchSpace(
        (
            flag("method", "speculative-config.method", "off", "ngram", "eagle3"),
            flag("tokens", "speculative-config.num_speculative_tokens", 1, 2, 3),
            flag("high", "speculative-config.prompt_lookup_max", 2, 3, 4, 5),
            flag("low", "speculative-config.prompt_lookup_min", 2, 3, 4, 5),
            flag("seqs", "max-num-seqs", "unset", 64),
            Parameter("proto", "categorical", ("unset", "LL"), env="NCCL_PROTO"),
        )
    )
