"""Owns `SglangEngine`: SGLang as an `Engine`, each method one call into the module that knows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.args import FlagValue, Params, ServerArgs
from tuner.config.engine import SglangConfig
from tuner.engines.base import (
    DraftSource,
    Drift,
    EngineFacts,
    Failure,
    Resolution,
    Violation,
)
from tuner.engines.depths import DepthTable
from tuner.engines.sglang import flags as F
from tuner.engines.sglang.acceptance import METRICS_PATH, acceptance_of, cycle_of
from tuner.engines.sglang.canonical import canonical, rewritten
from tuner.engines.sglang.chat import chat_wire, generation_check, served_model
from tuner.engines.sglang.collectives import collective_drifts, parse_start_log
from tuner.engines.sglang.effective import CHANGED_BY_SPECULATION, drift_of, parse_server_info
from tuner.engines.sglang.exits import LAST_WORDS, classify
from tuner.engines.sglang.facts import facts_from, unknown_flags
from tuner.engines.sglang.points import with_point
from tuner.engines.sglang.preflight import RESOLVER, parse_answer, request_of
from tuner.engines.sglang.render import (
    YAML_NAME,
    argv_of,
    flag_words,
    further_flags,
    parse_files,
    render_files,
)
from tuner.engines.sglang.rules import violations
from tuner.engines.sglang.schedule import beside, chain_depth, scheduled
from tuner.measure.records import Acceptance, RequestRecord, Snapshot
from tuner.measure.wire import Wire
from tuner.server.command import LaunchCommand, ReadyProbe
from tuner.space import SearchSpace

SIMULATED = "SGLANG_SIMULATE_ACC_LEN"
DEVICE_TIMER = "SGLANG_ENABLE_METRICS_DEVICE_TIMER"
PER_NODE = {
    "--nnodes": "NNODES",
    "--node-rank": "NODE_RANK",
    "--dist-init-addr": "DIST_INIT_ADDR",
}
"""The same files on every node: these alone differ (or name the first node's address)."""
_RUN = ("-m", "sglang.launch_server")
_SKIP_EMPTY_WARNINGS = ("-W", "ignore")


class SglangEngine:
    """The adapter of SGLang 0.5.10 and newer.

    `inherited` is the environment that servers inherit: a simulated acceptance in it makes every
    result synthetic.
    """

    kind = "sglang"
    speculative_flags = F.KNOWN_SPECULATIVE
    lossy_flags = frozenset(F.THRESHOLDS)
    confounders: tuple[str, ...] = CHANGED_BY_SPECULATION
    timing_env: Mapping[str, str] = {DEVICE_TIMER: "1"}

    def __init__(self, config: SglangConfig, inherited: Mapping[str, str] | None = None) -> None:
        self._config = config
        self._inherited = dict(os.environ if inherited is None else inherited)
        self._python = config.executable or "python3"

    # ---- arguments -------------------------------------------------------------------------
    def fixed_args(self) -> ServerArgs:
        """The study's fixed flags and environment, canonical."""
        return canonical(self._raw())

    def canonicalize(self, params: Params, space: SearchSpace) -> ServerArgs:
        """Fixed arguments with a point of the space applied, as SGLang would resolve them."""
        return canonical(self.asked(params, space))

    def rewrites(self, params: Params, space: SearchSpace) -> list[Violation]:
        """Rules by which SGLang replaces something that a point asks for: why points are one
        server."""
        return [Violation(r.name, r.text) for r in rewritten(self.asked(params, space))]

    def asked(self, params: Params, space: SearchSpace) -> ServerArgs:
        """Fixed arguments with a point applied, word for word: not yet canonical."""
        return with_point(self._raw(), params, space)

    def _raw(self) -> ServerArgs:
        flags: dict[str, FlagValue] = {"model-path": self._config.model, "enable-metrics": True}
        if self._config.draft_model is not None:
            flags[F.DRAFT_PATH] = self._config.draft_model
        for name, value in self._config.args.items():
            flags.pop(F.spelled(name), None)
            if value is not None:
                flags[F.spelled(name)] = value
        return ServerArgs(flags, dict(self._config.env))

    def without_speculation(self, args: ServerArgs) -> ServerArgs:
        """The same server with speculation off."""
        kept = {k: v for k, v in args.flags.items() if not F.is_speculative_flag(k)}
        if self._raw().flags.get("enable-mixed-chunk") is True:
            kept["enable-mixed-chunk"] = True  # dropped only because the draft cannot do it
        return canonical(ServerArgs(kept, args.env))

    def is_speculative(self, args: ServerArgs) -> bool:
        """True when an algorithm is set."""
        return bool(F.algorithm_of(args.flags))

    def draft_source(self, args: ServerArgs) -> DraftSource:
        """A lookup for NGRAM, a model for everything else that drafts."""
        algorithm = F.algorithm_of(args.flags)
        return "none" if not algorithm else "lookup" if algorithm == "NGRAM" else "model"

    def is_synthetic(self, args: ServerArgs) -> bool:
        """True when SGLANG_SIMULATE_ACC_LEN is above 0 and something drafts."""
        return self.is_speculative(args) and self._simulated(args.env)

    def _simulated(self, env: Mapping[str, str | None]) -> bool:
        value = env[SIMULATED] if SIMULATED in env else self._inherited.get(SIMULATED)
        try:
            return float(value or -1) > 0
        except ValueError:
            return True  # SGLang refuses it; a result, should there be one, is not real

    def is_lossy(self, args: ServerArgs) -> bool:
        """True when an acceptance threshold is below 1."""
        values = (args.flags.get(name, 1.0) for name in F.THRESHOLDS)
        return any(isinstance(v, int | float) and v < 1 for v in values)

    def complexity(self, args: ServerArgs) -> float:
        """Draft tokens and steps, then how many settings and variables there are."""
        numbers = (F.as_int(args.flags.get(n)) or 0 for n in (F.STEPS, F.TOPK, F.DRAFT_TOKENS))
        variables = sum(value is not None for value in args.env.values())
        return sum(numbers) + 0.1 * (len(args.flags) + variables)

    def depth(self, args: ServerArgs) -> int | None:
        """Steps of a chain; None for trees, other algorithms and adaptive servers."""
        return chain_depth(args)

    def scheduled(
        self, args: ServerArgs, best: Mapping[int, int], folder: str
    ) -> DepthTable | None:
        """`speculative-adaptive` with a file of single-candidate slots."""
        return scheduled(args, best, folder) if self.depth(args) else None

    def violations(self, args: ServerArgs, facts: EngineFacts) -> list[Violation]:
        """Broken rules, then flags this SGLang does not have."""
        return [*violations(args, facts), *unknown_flags(args, facts)]

    # ---- before launching ------------------------------------------------------------------
    def fact_commands(self) -> Mapping[str, LaunchCommand]:
        """`help` (accepted flags) and `version`, neither of which needs a GPU."""
        version = "import sglang; print(sglang.__version__)"
        return {
            "help": self._launch((*_SKIP_EMPTY_WARNINGS, *_RUN, "--help")),
            "version": self._launch((*_SKIP_EMPTY_WARNINGS, "-c", version)),
        }

    def _launch(self, words: Sequence[str], stdin: str | None = None) -> LaunchCommand:
        return LaunchCommand((self._python, *words), dict(self._config.env), stdin=stdin)

    def parse_facts(self, outputs: Mapping[str, str]) -> EngineFacts:
        """Version and accepted flags."""
        return facts_from(outputs.get("help", ""), outputs.get("version", ""), dict(outputs))

    def preflight(self, servers: Sequence[ServerArgs]) -> LaunchCommand | None:
        """SGLang's own resolver over all servers, in one process."""
        return self._launch((str(RESOLVER),), request_of(servers)) if servers else None

    def parse_preflight(self, output: str, servers: Sequence[ServerArgs]) -> list[Resolution]:
        """What the resolver said of each server."""
        return parse_answer(output, servers)

    # ---- launching -------------------------------------------------------------------------
    def command(self, args: ServerArgs, port: int) -> LaunchCommand:
        """`python -m sglang.launch_server` on 127.0.0.1:`port`."""
        where = ("--host", "127.0.0.1", "--port", str(port))
        return LaunchCommand((self._python, *_RUN, *argv_of(args), *where), dict(args.env))

    def probe(self, args: ServerArgs) -> ReadyProbe:
        """`/ready` (200 after the warm-up), the model's name, one real generation."""
        names = {str(args.flags.get("served-model-name", "")), self._config.model}
        return ReadyProbe(
            health_path="/ready",
            generation=generation_check(self._model_name(args)),
            identity_path="/v1/models",
            identity=served_model,
            expected_identity=tuple(sorted(name for name in names if name)),
            request_timeout_s=60.0,
            older_health_path="/health_generate",
            last_words=LAST_WORDS,
        )

    def _model_name(self, args: ServerArgs) -> str:
        return str(args.flags.get("served-model-name") or args.flags.get("model-path", ""))

    def classify(self, returncode: int | None, log_tail: str) -> Failure:
        """Why it exited, from its log."""
        return classify(returncode, log_tail, self._config.draft_model or "")

    # ---- the running server ----------------------------------------------------------------
    def wire(self, args: ServerArgs) -> Wire:
        """The streamed chat route, which ends with the answer's speculative counts."""
        return chat_wire(self._model_name(args), self.is_speculative(args))

    def effective_path(self) -> str | None:
        """`/server_info`."""
        return "/server_info"

    def parse_effective(self, text: str) -> dict[str, Any]:
        """Resolved arguments by flag name, without what changes by itself."""
        return parse_server_info(text)

    def parse_start_log(self, text: str) -> dict[str, Any]:
        """Whether its own all-reduce kernel is off, and why."""
        return parse_start_log(text)

    def drift(self, args: ServerArgs, effective: Mapping[str, Any]) -> list[Drift]:
        """Where the running server is not what was asked for, and what reduces before NCCL."""
        return [*drift_of(args, effective), *collective_drifts(args, effective)]

    def snapshot_paths(self) -> tuple[str, ...]:
        """The metrics page."""
        return (METRICS_PATH,)

    def flush_path(self) -> str | None:
        """Empties the prefix cache when nothing is running; waits up to ten seconds for that."""
        return "/flush_cache?timeout=10"

    def acceptance(
        self, before: Snapshot, after: Snapshot, records: Sequence[RequestRecord]
    ) -> Acceptance | None:
        """Acceptance from the answers' own counts, checked by the counters."""
        return acceptance_of(before, after, records, self._simulated(self._config.env))

    def cycle(self, before: Snapshot, after: Snapshot) -> dict[str, float]:
        """Seconds per verification step by part, from the device timer."""
        return cycle_of(before, after)

    # ---- deployable files ------------------------------------------------------------------
    def render_config(self, args: ServerArgs) -> dict[str, str]:
        """`server.yaml` for `--config`, and `server.env`."""
        return render_files(args)

    def parse_config(self, files: Mapping[str, str]) -> ServerArgs:
        """Inverse of `render_config`."""
        return parse_files(files)

    def deploy_command(self, args: ServerArgs, folder: str) -> LaunchCommand:
        """`--config` in its two-word form (the other is silently ignored), then what the file
        cannot carry."""
        further = [
            word
            for name, value in beside(further_flags(args), folder).items()
            for word in flag_words(name, value)
        ]
        words = (*_RUN, "--config", f"{folder}/{YAML_NAME}", *further)
        return LaunchCommand((self._python, *words), dict(args.env), per_node=PER_NODE)
