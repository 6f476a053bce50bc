"""Owns `LlamacppEngine`, the adapter of llama.cpp's server; its parts are the other modules."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from tuner.args import FlagValue, Params, ServerArgs
from tuner.config.engine import LlamacppConfig
from tuner.engines.base import (
    DraftSource,
    Drift,
    EngineFacts,
    Failure,
    Resolution,
    Violation,
)
from tuner.engines.depths import DepthTable
from tuner.engines.llamacpp import acceptance, canonical, failures, flags, rules, running
from tuner.engines.llamacpp import files as config_files
from tuner.engines.llamacpp.facts import parse_facts
from tuner.measure.records import Acceptance, RequestRecord, Snapshot
from tuner.measure.wire import Wire
from tuner.server.command import LaunchCommand, ReadyProbe
from tuner.space import SearchSpace

BUNDLED = "bundled"
_BASE_ENV: dict[str, str | None] = {
    **dict.fromkeys(flags.SPECULATIVE_ENV),
    # ggml answers an abort by attaching a debugger to itself, which can hang
    "GGML_NO_BACKTRACE": "1",
}


def find_program(executable: str | None, on_path: str | None) -> tuple[str, ...]:
    """The words that start the server: `executable`, else the one on PATH, else the bundled one.

    Args:
        executable: a llama-server, a Python interpreter that has the bundled server, `bundled`,
            or None.
        on_path: what `which llama-server` found.
    """
    module = ("-m", "tuner.embedded")
    if executable == BUNDLED or (executable is None and on_path is None):
        return (sys.executable, *module)
    if executable is None:
        return (str(on_path),)
    is_python = re.fullmatch(r"python[\d.]*", PurePath(executable).name)
    return (executable, *module) if is_python else (executable,)


class LlamacppEngine:
    """llama.cpp's server: any `llama-server`, or the bundled one."""

    kind = "llamacpp"
    speculative_flags = flags.SPECULATIVE
    lossy_flags = frozenset({"cache-type-k", "cache-type-v"})
    confounders: tuple[str, ...] = ()
    timing_env: Mapping[str, str] = {}

    def __init__(
        self, config: LlamacppConfig, *, which: Callable[[str], str | None] = shutil.which
    ) -> None:
        self._program = find_program(config.executable, which("llama-server"))
        written: dict[str, FlagValue] = {**_json_flags(config.args), "model": config.model}
        if config.draft_model is not None:
            written["spec-draft-model"] = config.draft_model
        self._written = ServerArgs(written, dict(config.env))

    # ---- arguments -------------------------------------------------------------------------
    def fixed_args(self) -> ServerArgs:
        """The study's fixed flags and environment, canonical."""
        return canonical.canonical(self._written)

    def canonicalize(self, params: Params, space: SearchSpace) -> ServerArgs:
        """Fixed arguments with a point applied, in canonical form."""
        return canonical.canonical(canonical.with_point(self._written, params, space))

    def rewrites(self, params: Params, space: SearchSpace) -> list[Violation]:
        """None by name: what does not apply to the method is left out."""
        return []

    def without_speculation(self, args: ServerArgs) -> ServerArgs:
        """The same server with speculation off."""
        opposites = frozenset(f"no-{name}" for name in flags.SPECULATIVE)
        return canonical.canonical(args.without(flags.SPECULATIVE | opposites))

    def is_speculative(self, args: ServerArgs) -> bool:
        """True when a speculative type is chosen."""
        return self.draft_source(args) != "none"

    def draft_source(self, args: ServerArgs) -> DraftSource:
        """`model` for draft-… types, `lookup` for n-gram types alone."""
        types = canonical.speculative_types(args.flags.get("spec-type", ""))
        if any(not name.startswith("ngram-") for name in types):
            return "model"
        return "lookup" if types or args.flags.get("spec-default") else "none"

    def is_synthetic(self, args: ServerArgs) -> bool:
        """True when the server decides acceptance by lot (`spec-synth-…`)."""
        return bool(flags.SYNTHETIC & args.flags.keys())

    def is_lossy(self, args: ServerArgs) -> bool:
        """True when the KV cache is quantised further than the study's fixed arguments say."""
        fixed = self.fixed_args().flags
        changed = [n for n in self.lossy_flags if args.flags.get(n) != fixed.get(n)]
        return any(args.flags.get(n) not in {None, "f16", "bf16", "f32"} for n in changed)

    def complexity(self, args: ServerArgs) -> float:
        """Draft tokens per step, a draft model counted as ten, flags and variables as tenths."""
        chosen = flags.SPECULATIVE & args.flags.keys()
        has_draft = 10.0 if "spec-draft-model" in chosen else 0.0
        extras = (len(chosen) + len(args.env)) / 10
        return float(rules.longest_draft(args.flags) or 0) + has_draft + extras

    def depth(self, args: ServerArgs) -> int | None:
        """None: llama-server has no table of depths."""
        return None

    def scheduled(
        self, args: ServerArgs, best: Mapping[int, int], folder: str
    ) -> DepthTable | None:
        """None, likewise."""
        return None

    def violations(self, args: ServerArgs, facts: EngineFacts) -> list[Violation]:
        """Rules that the server breaks."""
        return rules.violations(args, facts)

    # ---- before launching ------------------------------------------------------------------
    def fact_commands(self) -> Mapping[str, LaunchCommand]:
        """`--help` and `--version`."""
        return {
            name: LaunchCommand((*self._program, f"--{name}"), _BASE_ENV)
            for name in ("help", "version")
        }

    def parse_facts(self, outputs: Mapping[str, str]) -> EngineFacts:
        """Version, accepted flags, removed flags, defaults."""
        return parse_facts(outputs)

    def preflight(self, servers: Sequence[ServerArgs]) -> LaunchCommand | None:
        """llama-server cannot resolve arguments without loading the model."""
        return None

    def parse_preflight(self, output: str, servers: Sequence[ServerArgs]) -> list[Resolution]:
        """Nothing is known before launching."""
        return [Resolution() for _ in servers]

    # ---- launching -------------------------------------------------------------------------
    def command(self, args: ServerArgs, port: int) -> LaunchCommand:
        """The server on 127.0.0.1:`port`."""
        where = ("--host", "127.0.0.1", "--port", str(port))
        words = canonical.flag_words(args.flags)
        return LaunchCommand((*self._program, *words, *where), {**_BASE_ENV, **args.env})

    def probe(self, args: ServerArgs) -> ReadyProbe:
        """Health, model name, a short generation."""
        return running.probe(args)

    def classify(self, returncode: int | None, log_tail: str) -> Failure:
        """Why the server exited."""
        return failures.classify(returncode, log_tail)

    # ---- the running server ----------------------------------------------------------------
    def wire(self, args: ServerArgs) -> Wire:
        """The streamed chat route, prompt cache off."""
        return running.wire(args)

    def effective_path(self) -> str | None:
        """`/slots`: the only page that says whether the server really drafts."""
        return running.EFFECTIVE_PATH

    def parse_effective(self, text: str) -> dict[str, Any]:
        """Slots, context per slot, speculative type."""
        return running.parse_effective(text)

    def parse_start_log(self, text: str) -> dict[str, Any]:
        """{}: /props tells what there is."""
        return {}

    def drift(self, args: ServerArgs, effective: Mapping[str, Any]) -> list[Drift]:
        """Where the running server is not what was asked for."""
        return running.drift(args, effective)

    def snapshot_paths(self) -> tuple[str, ...]:
        """`/metrics`."""
        return (acceptance.METRICS_PATH,)

    def flush_path(self) -> str | None:
        """None: requests ask for no prompt cache."""
        return None

    def acceptance(
        self, before: Snapshot, after: Snapshot, records: Sequence[RequestRecord]
    ) -> Acceptance | None:
        """Acceptance from the answers' timings and `/metrics`."""
        return acceptance.acceptance(before, after, records)

    def cycle(self, before: Snapshot, after: Snapshot) -> dict[str, float]:
        """{}: llama-server times no part of a step."""
        return {}

    # ---- deployable files ------------------------------------------------------------------
    def render_config(self, args: ServerArgs) -> dict[str, str]:
        """`server.yaml` and `server.env`."""
        return config_files.render_config(args)

    def parse_config(self, files: Mapping[str, str]) -> ServerArgs:
        """Inverse of `render_config`."""
        return config_files.parse_config(files)

    def deploy_command(self, args: ServerArgs, folder: str) -> LaunchCommand:
        """The argument vector itself: llama-server reads no configuration file."""
        words = canonical.flag_words(args.flags)
        return LaunchCommand((*self._program, *words), {**_BASE_ENV, **args.env})


def _json_flags(args: Mapping[str, Any]) -> dict[str, FlagValue]:
    return {name: value for name, value in args.items() if value is not None}
