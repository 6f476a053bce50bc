"""Every engine kind of a study file has its adapter."""

from __future__ import annotations

import pytest

from tuner.config.engine import EngineBase, SglangConfig, VllmConfig
from tuner.engines.catalog import ENGINES, get_engine
from tuner.errors import EngineError


@pytest.mark.parametrize(
    "config",
    [SglangConfig(kind="sglang", model="m"), VllmConfig(kind="vllm", model="m")],
    ids=lambda config: config.kind,
)
def test_a_section_gets_its_engine(config: SglangConfig | VllmConfig) -> None:
    assert get_engine(config).kind == config.kind
    assert type(get_engine(config)) is ENGINES[config.kind]


def test_a_section_without_a_kind_is_refused() -> None:
    with pytest.raises(EngineError, match=r"engine\.kind: must be one of sglang, vllm"):
        get_engine(EngineBase(model="m"))
