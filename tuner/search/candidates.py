"""Owns which servers may be launched at all: the engine's facts and the distinct legal servers.

Launches no server. Runs the engine's own `--help` and resolver where it has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.args import Params, ServerArgs
from tuner.config.engine import EngineBase
from tuner.engines.base import Engine, EngineFacts, Resolution
from tuner.errors import EngineError
from tuner.server.oneshot import run_command
from tuner.space import SearchSpace, SpaceSurvey, survey

FACT_TIMEOUT_S = 120.0
PREFLIGHT_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Candidates:
    """The survey of a space for one engine, and what could not be checked before launching."""

    survey: SpaceSurvey
    facts: EngineFacts
    notes: tuple[str, ...] = ()


def inspect_engine(engine: Engine, config: EngineBase) -> EngineFacts:
    """What the installed engine says of itself, and the checkpoints' configurations.

    Raises:
        EngineError: the engine's program cannot be run at all.
    """
    outputs = {}
    for name, command in engine.fact_commands().items():
        try:
            done = run_command(command, timeout_s=FACT_TIMEOUT_S)
        except FileNotFoundError as error:
            raise EngineError(
                f"engine.executable: must be a program that runs, got {command.argv[0]}",
                "Install the engine, or name its interpreter or binary in engine.executable.",
            ) from error
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


def find_candidates(engine: Engine, space: SearchSpace, facts: EngineFacts) -> Candidates:
    """Every distinct legal server of a space, the engine's own resolver having its say."""
    first = _survey(engine, space, facts, {})
    resolutions, notes = _preflight(engine, [args for _, args in first.servers])
    if not resolutions:
        return Candidates(first, facts, tuple(notes))
    return Candidates(_survey(engine, space, facts, resolutions), facts, tuple(notes))


def _survey(
    engine: Engine, space: SearchSpace, facts: EngineFacts, resolutions: Mapping[str, Resolution]
) -> SpaceSurvey:
    def canonical(params: Params) -> ServerArgs:
        args = engine.canonicalize(params, space)
        resolved = resolutions.get(args.digest)
        return resolved.canonical if resolved and resolved.canonical else args

    def broken(args: ServerArgs) -> list[str]:
        found = [violation.message for violation in engine.violations(args, facts)]
        resolved = resolutions.get(args.digest)
        return [*found, resolved.error] if resolved and resolved.error else found

    return survey(space, canonical, broken)


def _preflight(
    engine: Engine, servers: list[ServerArgs]
) -> tuple[dict[str, Resolution], list[str]]:
    command = engine.preflight(servers) if servers else None
    if command is None:
        return {}, []
    try:
        done = run_command(command, timeout_s=PREFLIGHT_TIMEOUT_S)
    except FileNotFoundError:
        return {}, [f"the engine's own resolver was not asked: {command.argv[0]} does not exist"]
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {}, [f"the engine's own resolver was not asked: it failed with {last}"]
    resolved = engine.parse_preflight(done.stdout, servers)
    return {args.digest: each for args, each in zip(servers, resolved, strict=True)}, []
