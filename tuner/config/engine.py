"""Owns the `engine:` section: one model per engine kind, a hand-written union."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, JsonValue, TypeAdapter, WithJsonSchema

from tuner.config.base import Frozen, Issue, PositiveDuration
from tuner.config.environment import check_name, check_value
from tuner.config.space import check_flag
from tuner.redaction import is_secret


def _number_as_text(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


EnvValue = Annotated[
    str | None,
    BeforeValidator(_number_as_text),
    WithJsonSchema({"type": ["string", "number", "null"]}),
]
"""Text of a variable; a number is taken as its text; null removes an inherited variable."""


class EngineBase(Frozen):
    """What every engine section holds."""

    owned_flags: ClassVar[Mapping[str, str]] = {}
    """Flags that may not stand in `args`, and the key to write instead ("": nothing)."""

    executable: str | None = Field(
        default=None,
        description="Interpreter or binary that has the engine; null: found on PATH.",
    )
    model: str = Field(description="Path or name; ./ and ../ are relative to the study file.")
    draft_model: str | None = Field(
        default=None, description="Path or name of the draft, where the method needs one."
    )
    args: dict[str, JsonValue] = Field(
        default_factory=dict, description="Fixed flags under the engine's own hyphenated names."
    )
    env: dict[str, EnvValue] = Field(
        default_factory=dict,
        description="Fixed environment; null removes an inherited variable.",
    )
    launch_timeout: PositiveDuration = Field(
        default=1800.0, description="From launch to ready, as long as the log stands still."
    )

    def issues(self) -> Iterator[Issue]:
        """Flags by their own names with real values; variables by names that exist."""
        for flag, value in self.args.items():
            yield from self._flag_issues(flag, value)
        for name, text in self.env.items():
            issue = check_name(name, ("env", name))
            if issue:
                yield replace(issue, is_key=True)
            found = check_value(name, text or "", ("env", name))
            if found:
                yield found

    def _flag_issues(self, flag: str, value: JsonValue) -> Iterator[Issue]:
        at = ("args", flag)
        issue = check_flag(flag, at)
        if issue:
            yield issue
        if flag in self.owned_flags:
            yield _owned(flag, self.owned_flags[flag])
        if is_secret(flag):
            yield Issue(_SECRET, _SECRET_HINT, at, is_key=True)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            message = f"must be true or false without quotes, got text {value!r}"
            yield Issue(message, f"Write {value.lower()}: quoted text would switch it on.", at)
        if value is None:
            yield Issue("must have a value, got nothing", "Write true, or remove the flag.", at)


_SECRET = "must not be a flag that holds a secret: every user of the machine sees it in ps"
_SECRET_HINT = (
    "Use the engine's variable (HF_TOKEN, …) in engine.env or your shell; an API key is not "
    "needed while measuring."
)


def _owned(flag: str, key: str) -> Issue:
    hint = f"Write engine.{key} instead." if key else "Remove it: the tuner chooses it."
    return Issue("must not be a flag that the tuner sets", hint, ("args", flag), is_key=True)


Look = Literal["every", "finalists", "off"]
LookOrAuto = Literal["auto", "every", "finalists", "off"]
_NCCL_PROBE = (
    "Which trials with NCCL variables get one untimed launch per environment, which reads in "
    "NCCL's own log what it took from it, how it talks and what it chose. On top of "
    "budget.launches; tuner check says how many."
)
_MEASURE_CYCLE = (
    "Which trials get one untimed launch with the engine's timers, for the parts of a step in "
    "tuner explain; auto: finalists where there is a GPU. On top of budget.launches; tuner check "
    "says how many."
)


class SglangConfig(EngineBase):
    """SGLang, run by a Python interpreter that has it."""

    owned_flags: ClassVar[Mapping[str, str]] = {
        "model": "model",
        "model-path": "model",
        "speculative-draft-model": "draft_model",
        "speculative-draft-model-path": "draft_model",
        "host": "",
        "port": "",
    }
    kind: Literal["sglang"]
    nccl_probe: Look = Field(default="finalists", description=_NCCL_PROBE)
    measure_cycle: LookOrAuto = Field(default="auto", description=_MEASURE_CYCLE)


class VllmConfig(EngineBase):
    """vLLM, run by a Python interpreter that has it."""

    owned_flags: ClassVar[Mapping[str, str]] = {
        "model": "model",
        "speculative-config.model": "draft_model",
        "host": "",
        "port": "",
    }
    kind: Literal["vllm"]
    nccl_probe: Look = Field(default="finalists", description=_NCCL_PROBE)


class LlamacppConfig(EngineBase):
    """llama.cpp: a `llama-server` binary, or the bundled server when there is none."""

    owned_flags: ClassVar[Mapping[str, str]] = {
        "m": "model",
        "model": "model",
        "md": "draft_model",
        "model-draft": "draft_model",
        "spec-draft-model": "draft_model",
        "host": "",
        "port": "",
    }
    kind: Literal["llamacpp"]


class FakeConfig(EngineBase):
    """The scriptable fake server, for tests and dry runs; its results are never real."""

    kind: Literal["fake"]
    model: str = "fake"
    behaviour: dict[str, Any] = Field(
        default_factory=dict, description="What the fake server plays."
    )
    nccl_probe: Look = Field(default="off", description=_NCCL_PROBE)
    measure_cycle: Look = Field(default="off", description=_MEASURE_CYCLE)


class ReplayConfig(EngineBase):
    """A recorded landscape, replayed on a virtual clock without launching anything."""

    kind: Literal["replay"]
    model: str = "replay"
    landscape: str = Field(description="The recorded table of measured servers.")


EngineConfig = Annotated[
    SglangConfig | VllmConfig | LlamacppConfig | FakeConfig | ReplayConfig,
    Field(discriminator="kind"),
]


def parse_engine(data: Mapping[str, Any]) -> EngineConfig:
    """An engine section from plain JSON; raises ValueError for anything that is none."""
    return _SECTION.validate_python(dict(data))


_SECTION: TypeAdapter[EngineConfig] = TypeAdapter(EngineConfig)
