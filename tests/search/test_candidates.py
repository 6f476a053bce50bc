"""Which servers may be launched: rules, the engine's own resolver, and a missing engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tuner.args import Params, ServerArgs
from tuner.config.engine import FakeConfig
from tuner.engines.base import EngineFacts, Resolution, Violation
from tuner.errors import EngineError
from tuner.search.candidates import (
    find_candidates,
    inspect_engine,
    read_model_config,
    rule_counts,
)
from tuner.server.command import LaunchCommand
from tuner.space import Parameter, SearchSpace

SPACE = SearchSpace(
    (Parameter("steps", "int", (1, 2, 3, 4), flag="steps"),), constraints=("steps < 4",)
)


class Resolving:
    """An engine whose resolver lowers 3 steps to 2 and refuses 1; its own rule forbids none."""

    kind = "toy"

    def __init__(self, program: str = sys.executable, code: int = 0) -> None:
        self.program = program
        self.code = code

    def fact_commands(self) -> Mapping[str, LaunchCommand]:
        return {"version": LaunchCommand((self.program, "-c", "print('toy 1.2')"))}

    def parse_facts(self, outputs: Mapping[str, str]) -> EngineFacts:
        return EngineFacts(version=outputs["version"].strip())

    def fixed_args(self) -> ServerArgs:
        return ServerArgs({"steps": 9, "tp-size": 2})

    def without_speculation(self, args: ServerArgs) -> ServerArgs:
        return args.without(frozenset({"steps"}))

    def canonicalize(self, params: Params, space: SearchSpace) -> ServerArgs:
        return ServerArgs({"steps": params["steps"]})

    def rewrites(self, params: Params, space: SearchSpace) -> list[Violation]:
        return [Violation("capped", "3 becomes 2")] if params["steps"] == 3 else []

    def violations(self, args: ServerArgs, facts: EngineFacts) -> list[Violation]:
        return []

    def preflight(self, servers: Sequence[ServerArgs]) -> LaunchCommand | None:
        answers = json.dumps([server.flags for server in servers])
        code = f"import sys; print({answers!r}); sys.exit({self.code})"
        return LaunchCommand((self.program, "-c", code))

    def parse_preflight(self, output: str, servers: Sequence[ServerArgs]) -> list[Resolution]:
        found = []
        for flags in json.loads(output):
            error = "steps 1 is not supported" if flags["steps"] == 1 else ""
            canonical = ServerArgs({"steps": 2}) if flags["steps"] == 3 else None
            found.append(Resolution(error, canonical))
        return found


def toy(**changes: Any) -> Any:
    return Resolving(**changes)


def test_the_engines_own_resolver_has_its_say() -> None:
    found = find_candidates(toy(), SPACE, EngineFacts())
    assert found.survey.counts() == {
        "points": 4, "distinct": 1, "infeasible": 2, "duplicates": 1,
    }  # fmt: skip
    assert [args.flags for _, args in found.survey.servers] == [{"steps": 2}]
    assert found.args_of({"steps": 3}) == ServerArgs({"steps": 2})
    assert found.broken_rules({"steps": 1}) == ["steps 1 is not supported"]
    assert found.broken_rules({"steps": 4}) == ["steps < 4"]
    assert found.broken_rules({"steps": 2}) == []


def test_every_removed_point_is_counted_under_one_rule() -> None:
    counted = rule_counts(find_candidates(toy(), SPACE, EngineFacts()))
    assert [(each.rule, each.kind, each.points) for each in counted] == [
        ("the engine's own resolver", "infeasible", 1),
        ("the space's own constraint", "infeasible", 1),
        ("capped", "duplicate", 1),
    ]
    assert counted[0].example == "steps 1 is not supported"


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"program": "/no/such/program"}, "must be a program that can be started"),
        ({"code": 3}, "it failed with"),
    ],
)
def test_without_the_resolver_our_own_rules_serve(changes: dict[str, Any], note: str) -> None:
    found = find_candidates(toy(**changes), SPACE, EngineFacts())
    assert len(found.survey.servers) == 3
    assert note in found.notes[0]


def test_the_baseline_keeps_every_other_fixed_argument() -> None:
    found = find_candidates(toy(code=1), SPACE, EngineFacts())
    assert found.baseline == ServerArgs({"tp-size": 2})


def test_facts_come_from_the_program_and_the_checkpoint(tmp_path) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 61}')
    facts = inspect_engine(toy(), FakeConfig(kind="fake", model=str(tmp_path)))
    assert facts.version == "toy 1.2"
    assert facts.target_config == {"num_hidden_layers": 61}
    assert facts.draft_config == {}
    with pytest.raises(EngineError, match="must be a program that can be started"):
        inspect_engine(toy(program="/no/such"), FakeConfig(kind="fake"))


@pytest.mark.parametrize("text", ["[1]", "{broken", ""])
def test_an_unreadable_model_config_is_no_config(tmp_path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert read_model_config(str(tmp_path)) == {}
    assert read_model_config(None) == {}
