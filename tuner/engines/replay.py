"""Owns `ReplayEngine`: the servers of a recorded landscape as an engine. Nothing is launched.

A point of a space means the recorded server that has its values; what was not recorded is
infeasible. Flags are found by the space's flag names, by parameter names, or by the ending of
either, so that a short table (`size-n`) serves a space with an engine's full names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.args import UNSET, FlagValue, Params, ServerArgs
from tuner.config.engine import ReplayConfig
from tuner.engines.base import DraftSource, Drift, EngineFacts, Failure, Resolution, Violation
from tuner.engines.depths import DepthTable
from tuner.engines.llamacpp import files as config_files
from tuner.errors import FailureKind
from tuner.measure.landscape import read_landscape
from tuner.measure.records import Acceptance, RequestRecord, Snapshot
from tuner.measure.wire import Wire, openai_chat
from tuner.server.command import GenerationCheck, LaunchCommand, ReadyProbe
from tuner.space import Parameter, SearchSpace

NOTHING = LaunchCommand(("replay",))
"""A replayed server has no program."""


class ReplayEngine:
    """A landscape as an engine; everything it says was recorded or generated before."""

    kind = "replay"
    lossy_flags: frozenset[str] = frozenset()
    confounders: tuple[str, ...] = ()
    timing_env: Mapping[str, str] = {}

    def __init__(self, config: ReplayConfig) -> None:
        self.landscape = read_landscape(Path(config.landscape))
        self._written = ServerArgs(
            {name: value for name, value in config.args.items() if value is not None},
            dict(config.env),
        )
        self._known = {server.args.digest for server in self.landscape.servers}
        self._indices: dict[tuple[str, ...], dict[tuple[str, ...], ServerArgs]] = {}
        names = {name for server in self.landscape.servers for name in server.args.flags}
        self.speculative_flags = frozenset(names)

    # ---- arguments -------------------------------------------------------------------------
    def fixed_args(self) -> ServerArgs:
        """The recorded server without speculation."""
        return self.landscape.baseline.args

    def canonicalize(self, params: Params, space: SearchSpace) -> ServerArgs:
        """The recorded server that has these values; otherwise the values themselves."""
        columns = {p.name: self._column(p) for p in space.parameters}
        names = tuple(dict.fromkeys(columns.values()))
        wanted = dict.fromkeys(names, _text(UNSET))
        for parameter in space.parameters:
            value = params.get(parameter.name, UNSET)
            if value != UNSET:
                wanted[columns[parameter.name]] = _text(value)
        found = self._index(names).get(tuple(wanted.values()))
        return found or _as_written(params, space, self._written)

    def _column(self, parameter: Parameter) -> str:
        """The recorded flag or variable that a parameter sets."""
        if parameter.env is not None:
            return parameter.env
        flag = (parameter.flag or parameter.name).replace("_", "-")
        for name in (flag, parameter.name.replace("_", "-")):
            if name in self.speculative_flags:
                return name
        endings = [name for name in self.speculative_flags if flag.endswith(f"-{name}")]
        return max(endings, key=len, default=flag)

    def _index(self, names: tuple[str, ...]) -> dict[tuple[str, ...], ServerArgs]:
        """Recorded servers by their values of some flags; the plainest of those that agree."""
        if names not in self._indices:
            index: dict[tuple[str, ...], ServerArgs] = {}
            for server in sorted(self.landscape.servers, key=lambda s: -_size(s.args)):
                values = {**server.args.env, **server.args.flags}
                index[tuple(_text(values.get(name, UNSET)) for name in names)] = server.args
            self._indices[names] = index
        return self._indices[names]

    def rewrites(self, params: Params, space: SearchSpace) -> list[Violation]:
        """[]: a recorded server is what was recorded."""
        return []

    def without_speculation(self, args: ServerArgs) -> ServerArgs:
        """The recorded baseline."""
        return self.landscape.baseline.args

    def is_speculative(self, args: ServerArgs) -> bool:
        """True for every server but the baseline."""
        return args.digest != self.landscape.baseline.args.digest

    def draft_source(self, args: ServerArgs) -> DraftSource:
        """As the landscape says."""
        return self.landscape.drafts_by if self.is_speculative(args) else "none"

    def is_synthetic(self, args: ServerArgs) -> bool:
        """False: that all is simulated is said by the runner."""
        return False

    def is_lossy(self, args: ServerArgs) -> bool:
        """False: nothing is generated."""
        return False

    def complexity(self, args: ServerArgs) -> float:
        """The sum of its numbers on a logarithmic scale, and its extra variables."""
        numbers = [v for v in args.flags.values() if isinstance(v, int | float)]
        return sum(math.log1p(abs(float(v))) for v in numbers) + len(args.env) / 10

    def depth(self, args: ServerArgs) -> int | None:
        """None: a table of depths was not recorded."""
        return None

    def scheduled(
        self, args: ServerArgs, best: Mapping[int, int], folder: str
    ) -> DepthTable | None:
        """None, likewise."""
        return None

    def violations(self, args: ServerArgs, facts: EngineFacts) -> list[Violation]:
        """A server that was not recorded cannot be replayed."""
        if args.digest in self._known:
            return []
        return [Violation("recorded", f"not recorded in landscape {self.landscape.name}")]

    # ---- before launching ------------------------------------------------------------------
    def fact_commands(self) -> Mapping[str, LaunchCommand]:
        """{}: there is no program to ask."""
        return {}

    def parse_facts(self, outputs: Mapping[str, str]) -> EngineFacts:
        """The landscape's name as the version."""
        return EngineFacts(f"{self.landscape.name} ({self.landscape.origin})")

    def preflight(self, servers: Sequence[ServerArgs]) -> LaunchCommand | None:
        """None: nothing to resolve."""
        return None

    def parse_preflight(self, output: str, servers: Sequence[ServerArgs]) -> list[Resolution]:
        """Nothing is known before launching."""
        return [Resolution() for _ in servers]

    # ---- launching: never done -------------------------------------------------------------
    def command(self, args: ServerArgs, port: int) -> LaunchCommand:
        """Nothing that could be launched."""
        return NOTHING

    def probe(self, args: ServerArgs) -> ReadyProbe:
        """The health page no server answers."""
        body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}
        return ReadyProbe("/health", GenerationCheck("/v1/chat/completions", body, bool))

    def classify(self, returncode: int | None, log_tail: str) -> Failure:
        """No process, no exit."""
        return Failure(FailureKind.NOT_READY, "a replayed server has no process")

    def wire(self, args: ServerArgs) -> Wire:
        """The chat route."""
        return openai_chat("replay")

    def effective_path(self) -> str | None:
        """None: there is no page."""
        return None

    def parse_effective(self, text: str) -> dict[str, Any]:
        """{}: nothing runs."""
        return {}

    def parse_start_log(self, text: str) -> dict[str, Any]:
        """{}: nothing is launched."""
        return {}

    def drift(self, args: ServerArgs, effective: Mapping[str, Any]) -> list[Drift]:
        """[]: nothing runs that could differ."""
        return []

    def snapshot_paths(self) -> tuple[str, ...]:
        """(): no pages."""
        return ()

    def flush_path(self) -> str | None:
        """None: no cache."""
        return None

    def acceptance(
        self, before: Snapshot, after: Snapshot, records: Sequence[RequestRecord]
    ) -> Acceptance | None:
        """None: the runner brings the recorded counters."""
        return None

    def cycle(self, before: Snapshot, after: Snapshot) -> dict[str, float]:
        """{}: no part of a step was recorded."""
        return {}

    # ---- deployable files ------------------------------------------------------------------
    def render_config(self, args: ServerArgs) -> dict[str, str]:
        """Flags and environment as YAML."""
        return config_files.render_config(args)

    def parse_config(self, files: Mapping[str, str]) -> ServerArgs:
        """Inverse of `render_config`."""
        return config_files.parse_config(files)

    def deploy_command(self, args: ServerArgs, folder: str) -> LaunchCommand:
        """Nothing that could be deployed."""
        return NOTHING


def _size(args: ServerArgs) -> int:
    return len(args.flags) + len(args.env)


def _text(value: object) -> str:
    """A value as text that is the same for 4, 4.0 and "4"; absent and `unset` are one."""
    if value is None or value == UNSET:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    try:
        return f"{float(value):g}"  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return str(value).lower()


def _as_written(params: Params, space: SearchSpace, written: ServerArgs) -> ServerArgs:
    flags: dict[str, FlagValue] = dict(written.flags)
    env = dict(written.env)
    for parameter in space.parameters:
        value = params.get(parameter.name, UNSET)
        if value == UNSET:
            continue
        if parameter.env is not None:
            env[parameter.env] = str(value)
        else:
            flags[parameter.flag or parameter.name] = value
    return ServerArgs(flags, env)
