"""Owns `FakeEngine`, the adapter of the scriptable fake server: for tests and dry runs.

Its rules are the tree rules real engines have (a chain has steps + 1 draft tokens, a tree has a
capacity), so that infeasible points and twins exist. Nothing measured with it is real.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.args import UNSET, FlagValue, Params, ServerArgs
from tuner.config.engine import FakeConfig
from tuner.engines.base import DraftSource, Drift, EngineFacts, Failure, Resolution, Violation
from tuner.engines.depths import DepthTable, first_batches
from tuner.engines.llamacpp import files as config_files
from tuner.engines.llamacpp.acceptance import METRICS_PATH
from tuner.engines.llamacpp.acceptance import acceptance as counted_acceptance
from tuner.engines.llamacpp.running import has_text, served_model
from tuner.engines.sglang.acceptance import cycle_of
from tuner.errors import FailureKind
from tuner.measure.records import Acceptance, RequestRecord, Snapshot
from tuner.measure.wire import Wire, openai_chat
from tuner.server.command import GenerationCheck, LaunchCommand, ReadyProbe
from tuner.server.exits import describe_exit
from tuner.space import SearchSpace

DEVICE_TIMER = "SGLANG_ENABLE_METRICS_DEVICE_TIMER"
"""The fake server times the parts of a step where SGLang would."""
STEPS, TOPK, TOKENS = "spec-steps", "spec-topk", "spec-draft-tokens"
TABLE = "spec-schedule"
_PROGRAM = (sys.executable, "-m", "tuner.server.fake")
_SIGNS = (
    (r"unrecognized arguments.*|.*invalid .* value.*", FailureKind.REJECTED_FLAG),
    (r".*address already in use.*", FailureKind.PORT_IN_USE),
    (r".*out of memory.*", FailureKind.OUT_OF_MEMORY),
)


class FakeEngine:
    """The fake server as an engine."""

    kind = "fake"
    speculative_flags = frozenset({STEPS, TOPK, TOKENS, TABLE, "draft-model"})
    lossy_flags: frozenset[str] = frozenset()
    confounders: tuple[str, ...] = ()
    timing_env: Mapping[str, str] = {DEVICE_TIMER: "1"}

    def __init__(self, config: FakeConfig) -> None:
        self._program = (config.executable, *_PROGRAM[1:]) if config.executable else _PROGRAM
        self._prefix = str(config.behaviour.get("metrics_prefix", "fake:"))
        flags: dict[str, FlagValue] = {k: v for k, v in config.args.items() if v is not None}
        flags["model"] = config.model
        if config.draft_model is not None:
            flags["draft-model"] = config.draft_model
        if config.behaviour:
            flags["behaviour"] = dict(config.behaviour)
        self._written = ServerArgs(flags, dict(config.env))

    # ---- arguments -------------------------------------------------------------------------
    def fixed_args(self) -> ServerArgs:
        """The study's fixed arguments, canonical."""
        return _canonical(self._written)

    def canonicalize(self, params: Params, space: SearchSpace) -> ServerArgs:
        """Fixed arguments with a point applied; a chain's draft tokens follow from its steps."""
        flags, env = dict(self._written.flags), dict(self._written.env)
        for parameter in space.parameters:
            if parameter.name not in params:
                continue
            value = params[parameter.name]
            if parameter.flag is not None:
                flags.pop(parameter.flag, None)
                flags |= {} if value == UNSET else {parameter.flag: value}
            elif parameter.env is not None:
                env[parameter.env] = None if value == UNSET else str(value)
        return _canonical(ServerArgs(flags, env))

    def rewrites(self, params: Params, space: SearchSpace) -> list[Violation]:
        """None by name: what does not apply to the method is left out."""
        return []

    def without_speculation(self, args: ServerArgs) -> ServerArgs:
        """The same server with no draft steps."""
        return args.without(self.speculative_flags)

    def is_speculative(self, args: ServerArgs) -> bool:
        """True when there are draft steps."""
        return STEPS in args.flags

    def draft_source(self, args: ServerArgs) -> DraftSource:
        """The fake draft is a model."""
        return "model" if self.is_speculative(args) else "none"

    def is_synthetic(self, args: ServerArgs) -> bool:
        """False: everything about it is invented, which the study's engine kind says already."""
        return False

    def is_lossy(self, args: ServerArgs) -> bool:
        """False: no flag changes its texts."""
        return False

    def complexity(self, args: ServerArgs) -> float:
        """Draft tokens, extra variables as tenths."""
        steps, topk = _number(args, STEPS), _number(args, TOPK, 1)
        tokens = _number(args, TOKENS, steps + 1 if steps else 0)
        return tokens + topk / 10 + len(args.env) / 10

    def depth(self, args: ServerArgs) -> int | None:
        """Steps of a chain."""
        if TABLE in args.flags or _number(args, TOPK, 1) > 1:
            return None
        return int(_number(args, STEPS))

    def scheduled(
        self, args: ServerArgs, best: Mapping[int, int], folder: str
    ) -> DepthTable | None:
        """`--spec-schedule 1:4,6:0`: steps from each number of running requests on."""
        if not self.depth(args):
            return None
        table = ",".join(f"{first}:{depth}" for first, depth in first_batches(best).items())
        return DepthTable(args.replace({STEPS: max(best.values()), TABLE: table}))

    def violations(self, args: ServerArgs, facts: EngineFacts) -> list[Violation]:
        """Unknown flags and trees that cannot be."""
        found = [
            Violation("unknown flag", f"--{name} is not known to this build")
            for name in sorted(args.flags)
            if facts.flags is not None and name not in facts.flags
        ]
        return found + _tree_violations(args)

    # ---- before launching ------------------------------------------------------------------
    def fact_commands(self) -> Mapping[str, LaunchCommand]:
        """`--help` and `--version`."""
        names = ("help", "version")
        return {name: LaunchCommand((*self._program, f"--{name}")) for name in names}

    def parse_facts(self, outputs: Mapping[str, str]) -> EngineFacts:
        """Version and flags."""
        flags = frozenset(re.findall(r"--([a-z][a-z-]*)", outputs.get("help", "")))
        version = outputs.get("version", "").strip()
        return EngineFacts(version, flags if "model" in flags else None, dict(outputs))

    def preflight(self, servers: Sequence[ServerArgs]) -> LaunchCommand | None:
        """None: nothing to resolve."""
        return None

    def parse_preflight(self, output: str, servers: Sequence[ServerArgs]) -> list[Resolution]:
        """Nothing is known before launching."""
        return [Resolution() for _ in servers]

    # ---- launching -------------------------------------------------------------------------
    def command(self, args: ServerArgs, port: int) -> LaunchCommand:
        """The fake server on 127.0.0.1:`port`."""
        where = ("--host", "127.0.0.1", "--port", str(port))
        return LaunchCommand((*self._program, *_words(args), *where), dict(args.env))

    def probe(self, args: ServerArgs) -> ReadyProbe:
        """Health, model, generation."""
        body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}
        return ReadyProbe(
            health_path="/health",
            generation=GenerationCheck("/v1/chat/completions", body, has_text),
            identity_path="/v1/models",
            identity=served_model,
            expected_identity=(str(args.flags["model"]),),
        )

    def classify(self, returncode: int | None, log_tail: str) -> Failure:
        """Why it exited."""
        lines = [line.strip() for line in log_tail.splitlines() if line.strip()]
        for pattern, kind in _SIGNS:
            for line in reversed(lines):
                if re.search(pattern, line, re.IGNORECASE):
                    return Failure(kind, line)
        last = f": {lines[-1]}" if lines else ""
        if returncode is None:
            return Failure(FailureKind.NOT_READY, f"the server lives but is not ready{last}")
        return Failure(FailureKind.LAUNCH_CRASH, f"{describe_exit(returncode)}{last}")

    # ---- the running server ----------------------------------------------------------------
    def wire(self, args: ServerArgs) -> Wire:
        """The chat route, prompt cache off."""
        return openai_chat(
            str(args.flags["model"]),
            extra_body={"cache_prompt": False},
            extra_keys=("timings",),
            disables_cache=True,
        )

    def effective_path(self) -> str | None:
        """`/server_info`."""
        return "/server_info"

    def parse_effective(self, text: str) -> dict[str, Any]:
        """Every value the server reports."""
        try:
            values = json.loads(text)
        except ValueError:
            return {}
        return values if isinstance(values, dict) else {}

    def parse_start_log(self, text: str) -> dict[str, Any]:
        """{}: /server_info tells everything."""
        return {}

    def drift(self, args: ServerArgs, effective: Mapping[str, Any]) -> list[Drift]:
        """Flags whose effective value is another; a silently disabled draft among them."""
        return [
            Drift(name, str(value), str(effective[name]), name not in self.speculative_flags)
            for name, value in args.flags.items()
            if name in effective and name != "model" and effective[name] != value
        ]

    def snapshot_paths(self) -> tuple[str, ...]:
        """`/metrics`."""
        return (METRICS_PATH,)

    def flush_path(self) -> str | None:
        """`/flush_cache`."""
        return "/flush_cache"

    def acceptance(
        self, before: Snapshot, after: Snapshot, records: Sequence[RequestRecord]
    ) -> Acceptance | None:
        """From timings and metrics, as llama.cpp's."""
        return counted_acceptance(before, after, records, self._prefix)

    def cycle(self, before: Snapshot, after: Snapshot) -> dict[str, float]:
        """From its device timer, where DEVICE_TIMER is set."""
        return cycle_of(before, after, self._prefix)

    # ---- deployable files ------------------------------------------------------------------
    def render_config(self, args: ServerArgs) -> dict[str, str]:
        """`server.yaml` and `server.env`, flags as YAML."""
        return config_files.render_config(args)

    def parse_config(self, files: Mapping[str, str]) -> ServerArgs:
        """Inverse of `render_config`."""
        return config_files.parse_config(files)

    def deploy_command(self, args: ServerArgs, folder: str) -> LaunchCommand:
        """The argument vector itself."""
        return LaunchCommand((*self._program, *_words(args)), dict(args.env))


def _canonical(args: ServerArgs) -> ServerArgs:
    flags = {name: value for name, value in args.flags.items() if value is not False}
    args = ServerArgs(flags, args.env)
    steps, topk = args.flags.get(STEPS, 0), args.flags.get(TOPK, 1)
    if steps in (0, UNSET):
        return args.without(FakeEngine.speculative_flags)
    return args.without(frozenset({TOKENS, TOPK})) if topk == 1 else args


def _tree_violations(args: ServerArgs) -> list[Violation]:
    steps, topk = _number(args, STEPS), _number(args, TOPK, 1)
    tokens = _number(args, TOKENS)
    if topk <= 1 or not tokens:
        return []
    capacity = topk + (steps - 1) * topk * topk
    if tokens - 1 <= capacity:
        return []
    message = f"{TOKENS} - 1 must be at most {capacity:g} for steps={steps:g} topk={topk:g}"
    return [Violation("tree capacity", f"{message}, got {tokens - 1:g}")]


def _number(args: ServerArgs, name: str, default: float = 0) -> float:
    value = args.flags.get(name, default)
    return float(value) if isinstance(value, int | float) else default


def _words(args: ServerArgs) -> list[str]:
    words: list[str] = []
    for name, value in sorted(args.flags.items()):
        words.append(f"--{name}")
        if value is not True:
            words.append(value if isinstance(value, str) else json.dumps(value))
    return words
