"""The engines that the contract is proved for, each with a small space and known twins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tuner.args import ParamValue, ServerArgs
from tuner.config.engine import (
    EngineBase,
    FakeConfig,
    LlamacppConfig,
    SglangConfig,
    VllmConfig,
)
from tuner.engines.base import Engine
from tuner.engines.catalog import get_engine
from tuner.space import Parameter, SearchSpace


@dataclass(frozen=True)
class Case:
    """One engine under the contract.

    `twins` are points that must be one server, `others` points that must be different ones.
    """

    config: EngineBase
    space: SearchSpace
    point: Mapping[str, ParamValue]
    twins: tuple[tuple[Mapping[str, ParamValue], Mapping[str, ParamValue]], ...]
    off: Mapping[str, ParamValue]

    @property
    def engine(self) -> Engine:
        return get_engine(self.config)

    def server(self, point: Mapping[str, ParamValue] | None = None) -> ServerArgs:
        return self.engine.canonicalize(self.point if point is None else point, self.space)


def flag(name: str, path: str, *values: ParamValue, when: str | None = None) -> Parameter:
    return Parameter(name, "categorical", values, flag=path, when=when)


NCCL = Parameter("algo", "categorical", ("unset", "Ring", "Tree"), env="NCCL_ALGO")

LLAMACPP = Case(
    LlamacppConfig(
        kind="llamacpp",
        executable="bundled",
        model="/models/target.gguf",
        draft_model="/models/draft.gguf",
        args={"c": 4096, "flash-attn": True, "cache-prompt": False},
    ),
    SearchSpace(
        (
            flag("method", "spec-type", "none", "ngram-simple", "draft-simple"),
            flag("n", "spec-ngram-simple-size-n", 4, 12, "12", 12.0),
            flag("steps", "spec-draft-n-max", 1, 3, 5),
            NCCL,
        )
    ),
    {"method": "ngram-simple", "n": 4},
    (
        ({"method": "ngram-simple", "n": 12}, {"method": "ngram-simple"}),
        ({"method": "ngram-simple", "n": "12"}, {"method": "ngram-simple", "n": 12.0}),
        ({"method": "ngram-simple", "steps": 1}, {"method": "ngram-simple", "steps": 5}),
        ({"method": "draft-simple", "n": 4}, {"method": "draft-simple", "steps": 3}),
        ({"method": "none", "steps": 5}, {}),
    ),
    {"method": "none"},
)

FAKE = Case(
    FakeConfig(kind="fake", behaviour={"step_ms": 0}, args={"threads": 2}),
    SearchSpace(
        (
            flag("steps", "spec-steps", 0, 1, 3),
            flag("topk", "spec-topk", 1, 2),
            flag("tokens", "spec-draft-tokens", 4, 8),
            NCCL,
        )
    ),
    {"steps": 3, "topk": 2, "tokens": 8},
    (
        ({"steps": 3, "topk": 1, "tokens": 8}, {"steps": 3}),
        ({"steps": 0, "topk": 2}, {}),
    ),
    {"steps": 0},
)

SGLANG = Case(
    SglangConfig(
        kind="sglang",
        executable="/opt/sglang/bin/python",
        model="/models/target",
        draft_model="/models/eagle3",
        args={"tp-size": 8, "speculative-algorithm": "EAGLE3"},
    ),
    SearchSpace(
        (
            flag("steps", "speculative-num-steps", 1, 3, 5),
            flag("topk", "speculative-eagle-topk", 1, 4),
            flag("tokens", "speculative-num-draft-tokens", 4, 8),
            NCCL,
        )
    ),
    {"steps": 3, "topk": 4, "tokens": 8},
    (({"steps": 3, "topk": 1, "tokens": 8}, {"steps": 3, "topk": 1, "tokens": 4}),),
    {},
)

VLLM = Case(
    VllmConfig(
        kind="vllm",
        executable="/opt/vllm/bin/python",
        model="/models/target",
        args={"max-num-seqs": 16},
    ),
    SearchSpace(
        (
            flag("method", "speculative-config.method", "ngram"),
            flag("tokens", "speculative-config.num_speculative_tokens", 2, 4),
            flag("max", "speculative-config.prompt_lookup_max", 2, 4),
            NCCL,
        )
    ),
    {"method": "ngram", "tokens": 4, "max": 4},
    (),
    {},
)

CASES = {"llamacpp": LLAMACPP, "fake": FAKE, "sglang": SGLANG, "vllm": VLLM}


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    chosen: Any = CASES[request.param]
    return chosen
