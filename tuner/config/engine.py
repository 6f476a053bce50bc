"""Owns the `engine:` section: one model per engine kind, a hand-written union."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from tuner.config.base import Duration, Frozen


class EngineBase(Frozen):
    """What every engine section holds.

    Args:
        executable: interpreter or binary that has the engine; None: found on PATH.
        model: path or name of the model.
        draft_model: path or name of the draft model, where the method needs one.
        args: fixed flags under the engine's own hyphenated names.
        env: fixed environment; null removes an inherited variable.
        launch_timeout: seconds from launch to ready without any log progress.
    """

    executable: str | None = None
    model: str
    draft_model: str | None = None
    args: dict[str, JsonValue] = Field(default_factory=dict)
    env: dict[str, str | None] = Field(default_factory=dict)
    launch_timeout: Duration = Field(default=1800.0, gt=0)


class SglangConfig(EngineBase):
    """SGLang, run by a Python interpreter that has it."""

    kind: Literal["sglang"]


class VllmConfig(EngineBase):
    """vLLM, run by a Python interpreter that has it."""

    kind: Literal["vllm"]


class LlamacppConfig(EngineBase):
    """llama.cpp: a `llama-server` binary, or the bundled server when there is none."""

    kind: Literal["llamacpp"]


class FakeConfig(EngineBase):
    """The scriptable fake server, for tests and dry runs; its results are never real."""

    kind: Literal["fake"]
    model: str = "fake"
    behaviour: dict[str, Any] = Field(default_factory=dict)


class ReplayConfig(EngineBase):
    """A recorded landscape, replayed on a virtual clock without launching anything."""

    kind: Literal["replay"]
    model: str = "replay"
    landscape: str


EngineConfig = Annotated[
    SglangConfig | VllmConfig | LlamacppConfig | FakeConfig | ReplayConfig,
    Field(discriminator="kind"),
]
