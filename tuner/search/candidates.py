"""Owns which servers may be launched at all: the engine's facts and the distinct legal servers.

Launches no server. Runs the engine's own `--help` and resolver where it has them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tuner.args import Params, ServerArgs
from tuner.config.engine import EngineBase
from tuner.engines.base import Engine, EngineFacts, Resolution
from tuner.errors import EngineError, UsageError
from tuner.server.oneshot import run_command
from tuner.space import SearchSpace, SpaceSurvey, survey

FACT_TIMEOUT_S = 120.0
PREFLIGHT_TIMEOUT_S = 300.0
NOTHING = SpaceSurvey(0, [], [], {})


@dataclass(frozen=True, slots=True)
class Candidates:
    """The survey of a space for one engine, and what could not be checked before launching."""

    engine: Engine
    space: SearchSpace
    survey: SpaceSurvey
    facts: EngineFacts
    resolutions: Mapping[str, Resolution] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def baseline(self) -> ServerArgs:
        """The server without speculation, every other fixed argument equal."""
        return self.engine.without_speculation(self.engine.fixed_args())

    @property
    def digests(self) -> frozenset[str]:
        """Every server that may be launched, the baseline among them."""
        return frozenset([self.baseline.digest, *(args.digest for _, args in self.survey.servers)])

    def args_of(self, params: Params) -> ServerArgs:
        """The server a point starts, in the form the engine's own resolver gave it."""
        args = self.engine.canonicalize(params, self.space)
        resolved = self.resolutions.get(args.digest)
        return resolved.canonical if resolved and resolved.canonical else args

    def broken_rules(self, params: Params) -> list[str]:
        """Why a point may not be launched; [] when it may."""
        args = self.args_of(params)
        rules = [violation.message for violation in self.engine.violations(args, self.facts)]
        asked = self.engine.canonicalize(params, self.space)
        resolved = self.resolutions.get(asked.digest)
        words = [resolved.error] if resolved and resolved.error else []
        return [*self.space.broken_constraints(params), *rules, *words]


@dataclass(frozen=True, slots=True)
class RuleCount:
    """How many points a rule makes infeasible or duplicates, with one of them in words."""

    rule: str
    kind: Literal["infeasible", "duplicate"]
    points: int
    example: str


def rule_counts(candidates: Candidates) -> list[RuleCount]:
    """Every rule that removes points of the space, the most effective first.

    A point counts for the first rule that it breaks, so that the counts add up.
    """
    infeasible = [_first_broken(candidates, point) for point, _ in candidates.survey.infeasible]
    points, twins = list(candidates.space.points()), candidates.survey.duplicates
    repeated = [
        _first_rewrite(candidates, points[late], points[early]) for late, early in twins.items()
    ]
    return [*_counted("infeasible", infeasible), *_counted("duplicate", repeated)]


def no_server(candidates: Candidates) -> UsageError | None:
    """The refusal of a space without any legal server: launching its baseline would tell nothing.

    A space without parameters is meant: only the baseline is measured then.
    """
    if candidates.survey.servers or not candidates.space.parameters:
        return None
    rules = [f"{each.points} by {each.rule} ({each.example})" for each in rule_counts(candidates)]
    return UsageError(
        f"space: must hold a server that may be launched, got {candidates.survey.points} points, "
        f"all infeasible: {'; '.join(rules[:3])}",
        "Correct engine.args or the space's values; docs/rules-sglang.md and docs/rules-vllm.md "
        "list the rules.",
    )


def _counted(
    kind: Literal["infeasible", "duplicate"], rules: list[tuple[str, str]]
) -> list[RuleCount]:
    counts = Counter(rule for rule, _ in rules)
    examples = dict(reversed(rules))
    return [RuleCount(rule, kind, n, examples[rule]) for rule, n in counts.most_common()]


def _first_broken(candidates: Candidates, point: Params) -> tuple[str, str]:
    broken = candidates.space.broken_constraints(point)
    if broken:
        return "the space's own constraint", broken[0]
    found = candidates.engine.violations(candidates.args_of(point), candidates.facts)
    if found:
        return found[0].rule, found[0].message
    return "the engine's own resolver", "; ".join(candidates.broken_rules(point))


def _first_rewrite(candidates: Candidates, point: Params, twin: Params) -> tuple[str, str]:
    for each in (point, twin):
        found = candidates.engine.rewrites(each, candidates.space)
        if found:
            return found[0].rule, found[0].message
    return "the same server", "another point starts the same server"


def inspect_engine(engine: Engine, config: EngineBase) -> EngineFacts:
    """What the installed engine says of itself, and the checkpoints' configurations.

    Raises:
        EngineError: the engine's program cannot be run at all.
    """
    outputs = {}
    for name, command in engine.fact_commands().items():
        done = run_command(command, timeout_s=FACT_TIMEOUT_S)
        outputs[name] = f"{done.stdout}\n{done.stderr}"
    facts = engine.parse_facts(outputs)
    return replace(
        facts,
        target_config=facts.target_config or read_model_config(config.model),
        draft_config=facts.draft_config or read_model_config(config.draft_model),
    )


def read_model_config(model: str | None) -> dict[str, Any]:
    """The config.json of a local checkpoint folder; {} for anything else."""
    path = Path(model or "") / "config.json"
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def find_candidates(
    engine: Engine, space: SearchSpace, facts: EngineFacts, *, is_installed: bool = True
) -> Candidates:
    """Every distinct legal server of a space, the engine's own resolver having its say.

    `is_installed` False: there is nobody to ask, as was said already.
    """
    first = _survey(Candidates(engine, space, NOTHING, facts))
    if not is_installed:
        return first
    resolutions, notes = _preflight(engine, [args for _, args in first.survey.servers])
    noted = replace(first, resolutions=resolutions, notes=tuple(notes))
    return _survey(noted) if resolutions else noted


def _survey(candidates: Candidates) -> Candidates:
    """Sort every point; the rules of the space itself are the survey's own business."""
    engine, facts, resolutions = candidates.engine, candidates.facts, candidates.resolutions
    errors = {
        each.canonical.digest if each.canonical else digest: each.error
        for digest, each in resolutions.items()
        if each.error
    }

    def broken(args: ServerArgs) -> list[str]:
        found = [violation.message for violation in engine.violations(args, facts)]
        return [*found, errors[args.digest]] if args.digest in errors else found

    return replace(candidates, survey=survey(candidates.space, candidates.args_of, broken))


def _preflight(
    engine: Engine, servers: list[ServerArgs]
) -> tuple[dict[str, Resolution], list[str]]:
    command = engine.preflight(servers) if servers else None
    if command is None:
        return {}, []
    try:
        done = run_command(command, timeout_s=PREFLIGHT_TIMEOUT_S)
    except EngineError as error:
        return {}, [f"the engine's own resolver was not asked: {error.message}"]
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {}, [
            f"the engine's own resolver was not asked: it failed with {last}{_where(last)}"
        ]
    resolved = engine.parse_preflight(done.stdout, servers)
    return {args.digest: each for args, each in zip(servers, resolved, strict=True)}, []


def _where(last: str) -> str:
    """What to do when an interpreter lacks the engine."""
    missing = "No module named" in last
    return "; set engine.executable to the interpreter that has the engine" if missing else ""
