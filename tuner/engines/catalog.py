"""Owns which engine adapter serves which `engine.kind`: an explicit dictionary, no registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuner.config.engine import EngineBase
from tuner.engines.base import Engine
from tuner.engines.fake import FakeEngine
from tuner.engines.llamacpp.engine import LlamacppEngine
from tuner.engines.replay import ReplayEngine
from tuner.engines.sglang.engine import SglangEngine
from tuner.engines.vllm.engine import VllmEngine
from tuner.errors import EngineError

ENGINES: Mapping[str, Callable[[Any], Engine]] = {
    "sglang": SglangEngine,
    "vllm": VllmEngine,
    "llamacpp": LlamacppEngine,
    "fake": FakeEngine,
    "replay": ReplayEngine,
}


def get_engine(config: EngineBase) -> Engine:
    """The adapter of a study's `engine:` section; raises EngineError for an unknown kind."""
    kind = str(getattr(config, "kind", ""))
    if kind not in ENGINES:
        known = ", ".join(ENGINES)
        raise EngineError(f"engine.kind: must be one of {known}, got {kind!r}.", "Correct it.")
    return ENGINES[kind](config)
