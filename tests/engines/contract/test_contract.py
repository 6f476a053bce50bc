"""What every engine promises, proved for every engine (the table is in conftest.py)."""

from __future__ import annotations

import inspect
import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.args import ServerArgs
from tuner.config.engine import EngineBase
from tuner.engines.base import Engine, EngineFacts
from tuner.engines.catalog import ENGINES, get_engine
from tuner.measure.records import Prompt, RequestRecord, Sampling, Snapshot
from tuner.space import Parameter, SearchSpace

HOSTILE = st.one_of(
    st.text(max_size=8),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.sampled_from(["unset", "none", "null", "1e3", "on", "-", "--x", "{}", "a\nb", "$(id)"]),
)
per_case = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def record(**fields: Any) -> RequestRecord:
    base: dict[str, Any] = {
        "prompt_id": "p", "category": "chat", "scheduled_s": 0.0, "sent_s": 0.0,
        "first_s": 0.1, "last_s": 0.9, "end_s": 1.0, "chunk_s": (0.1, 0.9),
        "prompt_tokens": 5, "output_tokens": 9, "cached_tokens": 0, "finish_reason": "stop",
    }  # fmt: skip
    return RequestRecord(**{**base, **fields})


class TestIdentity:
    def test_canonicalize_is_a_function(self, case: Any) -> None:
        for point in case.space.points():
            assert case.server(point) == case.server(point)
            assert case.server(point).digest == case.server(point).digest

    def test_twins_are_one_server(self, case: Any) -> None:
        for one, other in case.twins:
            assert case.server(one) == case.server(other), (one, other)
            assert case.server(one).digest == case.server(other).digest

    def test_digests_differ_exactly_where_servers_differ(self, case: Any) -> None:
        servers = [case.server(point) for point in case.space.points()]
        for one in servers:
            for other in servers:
                assert (one.digest == other.digest) == (one == other)

    def test_arguments_survive_json(self, case: Any) -> None:
        for point in case.space.points():
            args = case.server(point)
            text = json.dumps(args.to_json(), allow_nan=False)
            assert ServerArgs.from_json(json.loads(text)) == args

    def test_an_environment_choice_reaches_the_server(self, case: Any) -> None:
        ring = case.server({**case.point, "algo": "Ring"})
        unset = case.server({**case.point, "algo": "unset"})
        assert ring.env["NCCL_ALGO"] == "Ring"
        assert unset.env.get("NCCL_ALGO") is None
        assert ring.digest != unset.digest
        assert case.engine.command(ring, 9).env["NCCL_ALGO"] == "Ring"


class TestBaseline:
    def test_the_baseline_does_not_draft(self, case: Any) -> None:
        engine = case.engine
        baseline = engine.without_speculation(case.server())
        assert engine.is_speculative(case.server())
        assert not engine.is_speculative(baseline)
        assert engine.draft_source(baseline) == "none"
        assert engine.draft_source(case.server()) in {"model", "lookup"}
        assert not engine.is_synthetic(baseline)
        assert not engine.is_lossy(baseline)

    def test_the_baseline_is_its_own_baseline(self, case: Any) -> None:
        baseline = case.engine.without_speculation(case.server())
        assert case.engine.without_speculation(baseline) == baseline

    def test_every_point_has_one_baseline(self, case: Any) -> None:
        digests = {
            case.engine.without_speculation(case.server(point)).digest
            for point in case.space.points()
            if "algo" not in point or point["algo"] == "unset"
        }
        assert len(digests) == 1

    def test_a_speculative_server_asks_for_more(self, case: Any) -> None:
        baseline = case.engine.without_speculation(case.server())
        assert case.engine.complexity(case.server()) > case.engine.complexity(baseline)


class TestLaunching:
    def test_the_command_is_words_on_the_loopback_address(self, case: Any) -> None:
        command = case.engine.command(case.server(), 12345)
        assert all(isinstance(word, str) and word and "\0" not in word for word in command.argv)
        assert command.argv[0] not in {"sh", "bash", "/bin/sh", "/bin/bash"}
        assert "-c" not in command.argv[:3]
        words = list(command.argv)
        assert words[words.index("--host") + 1] == "127.0.0.1"
        assert words[words.index("--port") + 1] == "12345"
        assert all(v is None or isinstance(v, str) for v in command.env.values())

    def test_different_servers_have_different_commands(self, case: Any) -> None:
        servers = {case.server(point).digest: case.server(point) for point in case.space.points()}
        commands = {
            (c.argv, tuple(sorted(c.env.items(), key=str)))
            for c in (case.engine.command(args, 1) for args in servers.values())
        }
        assert len(commands) == len(servers)

    def test_legal_servers_break_no_rule(self, case: Any) -> None:
        assert case.engine.violations(case.server(), EngineFacts()) == []
        baseline = case.engine.without_speculation(case.server())
        assert case.engine.violations(baseline, EngineFacts()) == []

    def test_the_probe_asks_for_a_generation(self, case: Any) -> None:
        probe = case.engine.probe(case.server())
        assert probe.health_path.startswith("/")
        assert probe.generation.path.startswith("/")
        json.dumps(probe.generation.body)
        assert probe.expected_identity
        for nothing in (None, [], {}, "", 0, {"choices": []}, {"error": {"message": "no"}}):
            assert probe.generation.has_text(nothing) is False

    @pytest.mark.parametrize("code", [None, 0, 1, 2, 137, -6, -9, -11, -15, -999])
    @pytest.mark.parametrize("log", ["", "\n", "x" * 5000, "\x00\xff", "Traceback\n  boom"])
    def test_every_exit_has_a_meaning(self, case: Any, code: int | None, log: str) -> None:
        failure = case.engine.classify(code, log)
        assert failure.reason
        assert "\n" not in failure.reason

    def test_facts_of_nothing_are_unknown(self, case: Any) -> None:
        for outputs in ({}, {"help": "", "version": ""}, {"help": "command not found"}):
            facts = case.engine.parse_facts(outputs)
            assert facts.flags is None
            assert case.engine.violations(case.server(), facts) == []

    def test_preflight_gives_one_resolution_per_server(self, case: Any) -> None:
        servers = [case.server(), case.engine.without_speculation(case.server())]
        for output in ("", "garbage", "[]", "{}"):
            assert len(case.engine.parse_preflight(output, servers)) == len(servers)


class TestRunning:
    def test_the_wire_streams_with_usage(self, case: Any) -> None:
        wire = case.engine.wire(case.server())
        prompt = Prompt("p", ({"role": "user", "content": "Hi"},))
        body = wire.body(prompt, Sampling(max_tokens=7, temperature=0.0))
        json.dumps(body)
        assert body["stream"] is True
        assert "7" in json.dumps(body)

    @pytest.mark.parametrize("text", ["", "null", "[]", "{}", "[1]", '{"a": NaN}', "<html>", "1"])
    def test_effective_values_are_total(self, case: Any, text: str) -> None:
        effective = case.engine.parse_effective(text)
        assert isinstance(effective, dict)
        case.engine.drift(case.server(), effective)

    def test_acceptance_of_nothing_is_unknown(self, case: Any) -> None:
        empty = Snapshot(0.0), Snapshot(1.0)
        assert case.engine.acceptance(*empty, []) is None
        assert case.engine.acceptance(*empty, [record()]) is None

    def test_acceptance_survives_hostile_pages(self, case: Any) -> None:
        for text in ("", "\x00", "a b c", "x 1e999", 'm{le="'):
            before, after = (
                Snapshot(0.0, dict.fromkeys(case.engine.snapshot_paths(), "")),
                Snapshot(1.0, dict.fromkeys(case.engine.snapshot_paths(), text)),
            )
            odd = record(extra={"timings": {"draft_n": "x"}, "meta_info": None})
            assert case.engine.acceptance(before, after, [odd]) is None
            assert isinstance(case.engine.cycle(before, after), dict)


class TestFiles:
    def test_what_is_rendered_is_read_back(self, case: Any) -> None:
        for point in case.space.points():
            args = case.server(point)
            files = case.engine.render_config(args)
            assert set(files) >= {"server.yaml", "server.env"}
            assert case.engine.parse_config(files) == args

    def test_unreadable_files_are_refused(self, case: Any) -> None:
        good = case.engine.render_config(case.server())
        for broken in ({}, {**good, "server.yaml": "[1"}, {**good, "server.env": "not a line"}):
            with pytest.raises(ValueError, match="server"):
                case.engine.parse_config(broken)

    def test_the_deploy_command_is_words(self, case: Any) -> None:
        command = case.engine.deploy_command(case.server(), "/bundle")
        assert all(isinstance(word, str) and word for word in command.argv)
        assert not {"--host", "--port"} & set(command.argv)


class TestHostileValues:
    @per_case
    @given(data=st.data())
    def test_canonicalize_and_rules_are_total(self, case: Any, data: st.DataObject) -> None:
        values = {p.name: data.draw(HOSTILE, label=p.name) for p in case.space.parameters}
        space = SearchSpace(
            tuple(
                Parameter(p.name, p.kind, (values[p.name],), flag=p.flag, env=p.env)
                for p in case.space.parameters
            )
        )
        engine = case.engine
        args = engine.canonicalize(values, space)
        assert engine.canonicalize(values, space).digest == args.digest
        engine.violations(args, EngineFacts())
        assert math.isfinite(engine.complexity(args)) or values
        assert not engine.is_speculative(engine.without_speculation(args))
        assert all(isinstance(word, str) for word in engine.command(args, 1).argv)


def test_the_catalog_is_the_configuration_s_list_of_kinds(case: Any) -> None:
    config: EngineBase = case.config
    assert get_engine(config).kind == case.engine.kind
    assert case.engine.kind in ENGINES


PROTOCOL = {
    name: inspect.signature(member)
    for name, member in vars(Engine).items()
    if inspect.isfunction(member) and not name.startswith("_")
}


@pytest.mark.parametrize("kind", list(ENGINES))
def test_every_engine_has_the_whole_protocol(kind: str) -> None:
    """Replay too, which launches nothing: a method or an argument that it lacks would only be
    missed in the middle of a study."""
    adapter: Any = ENGINES[kind]
    assert len(PROTOCOL) > 25
    for name, wanted in PROTOCOL.items():
        found = inspect.signature(getattr(adapter, name))
        assert list(found.parameters) == list(wanted.parameters), name
        assert found.return_annotation == wanted.return_annotation, name
    for name in Engine.__annotations__:
        assert hasattr(adapter, name) or name == "speculative_flags", name
    assert adapter.kind == kind
    assert isinstance(adapter.confounders, tuple)
    assert all(isinstance(value, str) for value in adapter.timing_env.values())
    assert all(value is not None for value in adapter.lossy_flags)


@pytest.mark.parametrize("text", ["", "null", "{", "\x00", "NCCL", "x" * 5000])
def test_a_start_log_is_read_whatever_it_holds(case: Any, text: str) -> None:
    found = case.engine.parse_start_log(text)
    assert isinstance(found, dict)
    case.engine.drift(case.server(), found)
