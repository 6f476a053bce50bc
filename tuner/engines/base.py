"""Owns the `Engine` protocol and the values it exchanges; knows no engine in particular.

An engine is a pure adapter. Whoever needs a process or a socket asks the engine what to run or
to request, runs it (server/, measure/, host/), and hands the text back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from tuner.args import Params, ServerArgs
from tuner.engines.depths import DepthTable
from tuner.errors import FailureKind
from tuner.measure.records import Acceptance, RequestRecord, Snapshot
from tuner.measure.wire import Wire
from tuner.server.command import LaunchCommand, ReadyProbe
from tuner.space import SearchSpace

DraftSource: TypeAlias = Literal["none", "model", "lookup"]


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a server breaks: rule name (as in the rule table), text, hint."""

    rule: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Drift:
    """An effective value that is not what was asked for, or that speculation changed.

    `is_confounder`: baseline and trial differ in more than speculation.
    """

    name: str
    requested: str
    effective: str
    is_confounder: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known about the installed engine, the model and the host before any launch.

    Args:
        version: the engine's version text; "" unknown.
        flags: names the installed program accepts; None unknown (nothing is refused then).
        outputs: raw text of each fact command, by name.
        values: engine-specific facts parsed from them, plain JSON.
        target_config, draft_config: the checkpoints' config.json, {} when unreadable.
    """

    version: str = ""
    flags: frozenset[str] | None = None
    outputs: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    target_config: Mapping[str, Any] = field(default_factory=dict)
    draft_config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the engine's own resolver says of one server before launching: an error in the
    engine's words, or the values it would use."""

    error: str = ""
    canonical: ServerArgs | None = None
    effective: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """A decoded exit or log: kind, one line in the engine's words, hint."""

    kind: FailureKind
    reason: str
    hint: str = ""
    is_draft_fault: bool = False


class Engine(Protocol):
    """A pure adapter of one server program. Every method is total on its documented input."""

    kind: str
    speculative_flags: frozenset[str]
    lossy_flags: frozenset[str]
    confounders: tuple[str, ...]
    """Effective values, besides drafting, that speculation may change: compared with the
    baseline's."""

    timing_env: Mapping[str, str]
    """Variables that make a server time the parts of a step, which `cycle` then reads; empty
    where it cannot, or always does."""

    # ---- arguments -------------------------------------------------------------------------
    def fixed_args(self) -> ServerArgs:
        """The study's fixed flags and environment, model and draft model included, canonical."""
        ...

    def canonicalize(self, params: Params, space: SearchSpace) -> ServerArgs:
        """Fixed arguments with a point of the space applied, in the engine's canonical form.

        Two points that the engine resolves to the same server give equal `ServerArgs`. Total:
        never raises on a point of the space; what is illegal is left for `violations`.
        """
        ...

    def rewrites(self, params: Params, space: SearchSpace) -> list[Violation]:
        """Rules by which `canonicalize` changes what a point asks for, as the engine would."""
        ...

    def without_speculation(self, args: ServerArgs) -> ServerArgs:
        """The same server with speculation off: the baseline of `args`."""
        ...

    def is_speculative(self, args: ServerArgs) -> bool:
        """True when the server would draft at all."""
        ...

    def draft_source(self, args: ServerArgs) -> DraftSource:
        """Who proposes draft tokens: a model (draft, EAGLE, MTP), a lookup (n-gram, suffix), or
        nobody."""
        ...

    def is_synthetic(self, args: ServerArgs) -> bool:
        """True when acceptance is simulated: such results are marked and never recommended."""
        ...

    def is_lossy(self, args: ServerArgs) -> bool:
        """True when a setting trades output distribution for speed: marked everywhere."""
        ...

    def complexity(self, args: ServerArgs) -> float:
        """How much a server asks for (draft tokens, extra variables): ties go to the smaller."""
        ...

    def depth(self, args: ServerArgs) -> int | None:
        """Draft tokens per step of a server that drafts a chain, 0 without speculation; None
        where the engine has no table of depths that this server could be an entry of."""
        ...

    def scheduled(
        self, args: ServerArgs, best: Mapping[int, int], folder: str
    ) -> DepthTable | None:
        """The same server with the best depth per concurrency in the engine's own table.

        Servers that differ in nothing but depth give the same table.

        Args:
            args: a server whose `depth` is known and above 0.
            best: depth by concurrency, 0 where speculation does not pay; some depth above 0.
            folder: where the table's files will lie; "": beside server.yaml, in the bundle.
        """
        ...

    def violations(self, args: ServerArgs, facts: EngineFacts) -> list[Violation]:
        """Rules of the engine that the server breaks; launching it would fail or mislead."""
        ...

    # ---- before launching ------------------------------------------------------------------
    def fact_commands(self) -> Mapping[str, LaunchCommand]:
        """Commands whose output tells version and accepted flags, by name (`help`, `version`)."""
        ...

    def parse_facts(self, outputs: Mapping[str, str]) -> EngineFacts:
        """Facts from those commands' combined output; unknown text gives unknown facts."""
        ...

    def preflight(self, servers: Sequence[ServerArgs]) -> LaunchCommand | None:
        """One command that resolves all servers with the engine's own code, or None."""
        ...

    def parse_preflight(self, output: str, servers: Sequence[ServerArgs]) -> list[Resolution]:
        """One resolution per server, in order, from that command's standard output."""
        ...

    # ---- launching -------------------------------------------------------------------------
    def command(self, args: ServerArgs, port: int) -> LaunchCommand:
        """What starts the server on 127.0.0.1:`port`."""
        ...

    def probe(self, args: ServerArgs) -> ReadyProbe:
        """What ready means."""
        ...

    def classify(self, returncode: int | None, log_tail: str) -> Failure:
        """Why a server exited (negative code: signal; None: it lives) from its last log lines."""
        ...

    # ---- the running server ----------------------------------------------------------------
    def wire(self, args: ServerArgs) -> Wire:
        """The streaming route that is measured."""
        ...

    def effective_path(self) -> str | None:
        """GET whose text `parse_effective` reads; None: it reads the start-up log instead."""
        ...

    def parse_effective(self, text: str) -> dict[str, Any]:
        """Effective values of the running server by flag name; {} when nothing is readable."""
        ...

    def parse_start_log(self, text: str) -> dict[str, Any]:
        """Effective values that the start-up log alone tells; {} where there are none."""
        ...

    def drift(self, args: ServerArgs, effective: Mapping[str, Any]) -> list[Drift]:
        """Where the running server is not what was asked for."""
        ...

    def snapshot_paths(self) -> tuple[str, ...]:
        """GET paths whose texts `acceptance` compares before and after."""
        ...

    def flush_path(self) -> str | None:
        """POST that empties the prompt cache between blocks, or None."""
        ...

    def acceptance(
        self, before: Snapshot, after: Snapshot, records: Sequence[RequestRecord]
    ) -> Acceptance | None:
        """Acceptance over a window; None when the server reports nothing about drafting."""
        ...

    def cycle(self, before: Snapshot, after: Snapshot) -> dict[str, float]:
        """Seconds per verification step by part (`draft`, `verify`, `other`); {} when the engine
        does not time them."""
        ...

    # ---- deployable files ------------------------------------------------------------------
    def render_config(self, args: ServerArgs) -> dict[str, str]:
        """`server.yaml` (the engine's own form) and `server.env`, by file name."""
        ...

    def parse_config(self, files: Mapping[str, str]) -> ServerArgs:
        """Inverse of `render_config`; raises ValueError with the place of anything unreadable."""
        ...

    def deploy_command(self, args: ServerArgs, folder: str) -> LaunchCommand:
        """What `launch.sh` runs: the engine's program reading `folder`/server.yaml; host and
        port come from $HOST and $PORT and are appended by the script."""
        ...
