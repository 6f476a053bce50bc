"""Owns `VllmEngine`: vLLM behind the `Engine` protocol. Pure; its parts live beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.args import FlagValue, Params, ServerArgs
from tuner.config.engine import VllmConfig
from tuner.engines.base import DraftSource, Drift, EngineFacts, Failure, Resolution, Violation
from tuner.engines.depths import DepthTable
from tuner.engines.vllm.arguments import (
    NEEDS_SPECULATION,
    SPECULATIVE,
    argv,
    canonical,
    merge,
    parse,
    render,
    speculation,
)
from tuner.engines.vllm.case import Case
from tuner.engines.vllm.counters import METRICS, read_acceptance
from tuner.engines.vllm.discovery import (
    FACTS,
    facts_argv,
    read_facts,
    read_resolutions,
    resolve_argv,
)
from tuner.engines.vllm.environment import collective_drifts, env_text
from tuner.engines.vllm.failures import classify
from tuner.engines.vllm.program import find_program
from tuner.engines.vllm.rules import broken_rules
from tuner.engines.vllm.schedule import SCHEDULE, with_schedule
from tuner.engines.vllm.speculation import draft_tokens, is_lossy, is_synthetic, source_of
from tuner.engines.vllm.startup import drifts, read_startup
from tuner.measure.records import Acceptance, RequestRecord, Snapshot
from tuner.measure.wire import Wire, openai_chat
from tuner.server.command import GenerationCheck, LaunchCommand, ReadyProbe
from tuner.space import SearchSpace

_LAUNCH_ENV: Mapping[str, str | None] = {
    # Inherited, these would lock the probe out, measure a server in development mode, or hide
    # the start-up log that is read back.
    "VLLM_API_KEY": None,
    "VLLM_SERVER_DEV_MODE": None,
    "VLLM_LOGGING_LEVEL": "INFO",
    "VLLM_LOGGING_CONFIG_PATH": None,
    "VLLM_CONFIGURE_LOGGING": None,
    "VLLM_LOGGING_COLOR": None,
    "VLLM_NO_USAGE_STATS": "1",
}
_ASK_ENV: Mapping[str, str | None] = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}


class VllmEngine:
    """vLLM 0.11 to 0.33, run as `vllm serve` by the environment that has it."""

    kind = "vllm"
    speculative_flags = frozenset({SPECULATIVE}) | NEEDS_SPECULATION
    confounders: tuple[str, ...] = ()
    timing_env: Mapping[str, str] = {}
    lossy_flags = frozenset(
        f"{SPECULATIVE}.{name}"
        for name in (
            "rejection_sample_method", "synthetic_acceptance_rates",
            "synthetic_acceptance_length", "draft_sample_method", "acceptance_method",
        )
    )  # fmt: skip

    def __init__(self, config: VllmConfig) -> None:
        self._config = config
        self._program = find_program(config.executable)

    # ---- arguments -------------------------------------------------------------------------
    def fixed_args(self) -> ServerArgs:
        """The study's fixed flags and environment, canonical."""
        return canonical(self._fixed_flags(), self._config.env, self._config.draft_model)

    def canonicalize(self, params: Params, space: SearchSpace) -> ServerArgs:
        """Fixed arguments with a point of the space applied, in canonical form."""
        flags, env = self._fixed_flags(), dict(self._config.env)
        for name, value in params.items():
            parameter = space.parameter(name)
            if parameter.flag is not None:
                merge(flags, parameter.flag, value)
            elif parameter.env is not None:
                env[parameter.env] = env_text(value)
        return canonical(flags, env, self._config.draft_model)

    def rewrites(self, params: Params, space: SearchSpace) -> list[Violation]:
        """None by name: what does not apply to the method is left out."""
        return []

    def without_speculation(self, args: ServerArgs) -> ServerArgs:
        """The same server with speculation off."""
        return args.without(self.speculative_flags)

    def is_speculative(self, args: ServerArgs) -> bool:
        """True when the server would draft at all."""
        return SPECULATIVE in args.flags

    def draft_source(self, args: ServerArgs) -> DraftSource:
        """Who proposes draft tokens."""
        return source_of(speculation(args)) if self.is_speculative(args) else "none"

    def is_synthetic(self, args: ServerArgs) -> bool:
        """True when vLLM is told what to accept."""
        return is_synthetic(speculation(args))

    def is_lossy(self, args: ServerArgs) -> bool:
        """True when accepted tokens may differ from the target's own."""
        return is_lossy(speculation(args))

    def complexity(self, args: ServerArgs) -> float:
        """Draft tokens per step, plus a little for every further setting."""
        spec = speculation(args)
        further = len(spec.keys() - {"method", "num_speculative_tokens", "model"})
        added = sum(name not in self._config.env for name in args.env)
        return (draft_tokens(spec) or bool(spec)) + 0.1 * further + 0.5 * added

    def depth(self, args: ServerArgs) -> int | None:
        """`num_speculative_tokens`; None for a server that has a table already."""
        spec = speculation(args)
        return None if SCHEDULE in spec else draft_tokens(spec) if spec else 0

    def scheduled(
        self, args: ServerArgs, best: Mapping[int, int], folder: str
    ) -> DepthTable | None:
        """`num_speculative_tokens_per_batch_size` inside the speculative configuration."""
        if not self.depth(args):
            return None
        seats = args.flags.get("max-num-seqs")
        most = max(seats if isinstance(seats, int) else 0, *best)
        return DepthTable(
            args.replace({SPECULATIVE: with_schedule(speculation(args), best, most)})
        )

    def violations(self, args: ServerArgs, facts: EngineFacts) -> list[Violation]:
        """Rules that the server breaks (docs/rules-vllm.md)."""
        return broken_rules(Case(args, facts))

    # ---- before launching ------------------------------------------------------------------
    def fact_commands(self) -> Mapping[str, LaunchCommand]:
        """One question to the installed vLLM; it needs no GPU."""
        argv_ = facts_argv(self._program.interpreter)
        return {FACTS: LaunchCommand(argv_, {**self._config.env, **_ASK_ENV})}

    def parse_facts(self, outputs: Mapping[str, str]) -> EngineFacts:
        """Version, flags, methods and fields; unknown facts from unreadable text."""
        return read_facts(outputs.get(FACTS, ""))

    def preflight(self, servers: Sequence[ServerArgs]) -> LaunchCommand | None:
        """One command that resolves all servers with vLLM's own parser and config classes."""
        if not servers:
            return None
        argv_ = resolve_argv(self._program.interpreter, servers)
        return LaunchCommand(argv_, {**self._config.env, **_ASK_ENV})

    def parse_preflight(self, output: str, servers: Sequence[ServerArgs]) -> list[Resolution]:
        """One resolution per server, in order."""
        return read_resolutions(output, servers)

    # ---- launching -------------------------------------------------------------------------
    def command(self, args: ServerArgs, port: int) -> LaunchCommand:
        """`vllm serve MODEL …` on 127.0.0.1:`port`."""
        where = ("--host", "127.0.0.1", "--port", str(port))
        items = argv(args.flags)
        return LaunchCommand(
            (*self._program.serve, *items[:1], *where, *items[1:]), {**_LAUNCH_ENV, **args.env}
        )

    def probe(self, args: ServerArgs) -> ReadyProbe:
        """Health, model id, one short chat answer."""
        body = {
            "model": self._served(args),
            "messages": [{"role": "user", "content": "Say one word."}],
            "max_tokens": 4,
            "temperature": 0,
        }
        return ReadyProbe(
            health_path="/health",
            generation=GenerationCheck("/v1/chat/completions", body, _has_tokens),
            identity_path="/v1/models",
            identity=_first_model,
            expected_identity=self._names(args),
        )

    def classify(self, returncode: int | None, log_tail: str) -> Failure:
        """Why the server exited, in vLLM's own words."""
        return classify(returncode, log_tail, self._config.draft_model)

    # ---- the running server ----------------------------------------------------------------
    def wire(self, args: ServerArgs) -> Wire:
        """The streamed chat route.

        Exact lengths need `ignore_eos` only: `min_tokens` would forbid the end-of-text token,
        which changes the text.
        """
        return openai_chat(self._served(args), extra_keys=("metrics",))

    def effective_path(self) -> str | None:
        """None: `/server_info` exists only in development mode, the start-up log always."""
        return None

    def parse_effective(self, text: str) -> dict[str, Any]:
        """Effective values from the start-up log."""
        return read_startup(text)

    def parse_start_log(self, text: str) -> dict[str, Any]:
        """{}: its values come from that log already."""
        return {}

    def drift(self, args: ServerArgs, effective: Mapping[str, Any]) -> list[Drift]:
        """Where the running server is not what was asked for."""
        return [*drifts(args, effective), *collective_drifts(args, effective)]

    def snapshot_paths(self) -> tuple[str, ...]:
        """The Prometheus page."""
        return (METRICS,)

    def flush_path(self) -> str | None:
        """None: `/reset_prefix_cache` exists only in development mode; prompts are made unique."""
        return None

    def acceptance(
        self, before: Snapshot, after: Snapshot, records: Sequence[RequestRecord]
    ) -> Acceptance | None:
        """Acceptance over all decode steps of the window (see `counters`)."""
        synthetic = is_synthetic(speculation(self.fixed_args()))
        return read_acceptance(before, after, records, is_synthetic=synthetic)

    def cycle(self, before: Snapshot, after: Snapshot) -> dict[str, float]:
        """{}: vLLM does not time drafting and verification apart."""
        return {}

    # ---- deployable files ------------------------------------------------------------------
    def render_config(self, args: ServerArgs) -> dict[str, str]:
        """`server.yaml` for `vllm serve --config`, and `server.env`."""
        return render(args)

    def parse_config(self, files: Mapping[str, str]) -> ServerArgs:
        """Inverse of `render_config`."""
        return parse(files)

    def deploy_command(self, args: ServerArgs, folder: str) -> LaunchCommand:
        """`vllm serve --config FOLDER/server.yaml`; the script appends host and port."""
        return LaunchCommand((*self._program.serve, "--config", f"{folder}/server.yaml"), args.env)

    # ---- parts -----------------------------------------------------------------------------
    def _fixed_flags(self) -> dict[str, FlagValue]:
        flags: dict[str, FlagValue] = {}
        for name, value in self._config.args.items():
            merge(flags, name, value)
        flags["model"] = self._config.model
        return flags

    def _names(self, args: ServerArgs) -> tuple[str, ...]:
        served = args.flags.get("served-model-name", args.flags.get("model", self._config.model))
        return tuple(map(str, served)) if isinstance(served, list) else (str(served),)

    def _served(self, args: ServerArgs) -> str:
        return self._names(args)[0]


def _has_tokens(answer: Any) -> bool:
    """True when a chat answer holds generated tokens, reasoning included."""
    usage = answer.get("usage") if isinstance(answer, Mapping) else None
    tokens = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    return isinstance(tokens, int) and tokens > 0 and bool(answer.get("choices"))


def _first_model(text: str) -> str | None:
    """The first model id of `/v1/models`."""
    try:
        data = json.loads(text)["data"]
        return str(data[0]["id"])
    except (ValueError, KeyError, IndexError, TypeError):
        return None
