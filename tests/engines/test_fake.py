"""The fake server as an engine: its rules, and one launch as a trial would do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.config.engine import FakeConfig
from tuner.engines.base import EngineFacts
from tuner.engines.fake import FakeEngine
from tuner.errors import FailureKind
from tuner.measure.client import LoadClient
from tuner.measure.prompts import Workload
from tuner.measure.records import LoadPoint, Prompt, Sampling
from tuner.server.oneshot import run_command
from tuner.server.ports import free_port
from tuner.server.process import ServerProcess
from tuner.server.readiness import wait_ready
from tuner.space import Parameter, SearchSpace, survey

SPACE = SearchSpace(
    (
        Parameter("steps", "int", tuple(range(1, 8)), flag="spec-steps"),
        Parameter("topk", "categorical", (1, 2, 4, 8), flag="spec-topk"),
        Parameter("tokens", "categorical", (4, 8, 16, 32), flag="spec-draft-tokens"),
    )
)


def engine(**fields: Any) -> FakeEngine:
    return FakeEngine(FakeConfig(**{"kind": "fake", **fields}))


def server(**flags: Any) -> ServerArgs:
    named = {k.replace("_", "-"): v for k, v in flags.items()}
    return engine(args=named).fixed_args()


def test_a_chain_has_one_shape_per_number_of_steps() -> None:
    assert server(spec_steps=3, spec_topk=1, spec_draft_tokens=16).flags == {
        "model": "fake", "spec-steps": 3,
    }  # fmt: skip
    assert server(spec_steps=0, spec_topk=4, spec_draft_tokens=16).flags == {"model": "fake"}
    assert server(spec_steps=2, spec_topk=2, spec_draft_tokens=4).flags["spec-draft-tokens"] == 4


def test_counting_has_the_shape_of_a_real_tree_space() -> None:
    fake = engine()
    counts = survey(
        SPACE,
        lambda point: fake.canonicalize(point, SPACE),
        lambda args: fake.violations(args, EngineFacts()),
    ).counts()
    # 28 chains are 7 servers; 64 of 84 trees hold their draft tokens
    assert counts == {"points": 112, "distinct": 71, "infeasible": 20, "duplicates": 21}


@pytest.mark.parametrize(
    ("flags", "is_legal"),
    [
        ({"spec_steps": 1, "spec_topk": 4, "spec_draft_tokens": 5}, True),
        ({"spec_steps": 1, "spec_topk": 4, "spec_draft_tokens": 6}, False),
        ({"spec_steps": 2, "spec_topk": 2, "spec_draft_tokens": 7}, True),
        ({"spec_steps": 2, "spec_topk": 2, "spec_draft_tokens": 8}, False),
    ],
)
def test_the_capacity_of_a_tree(flags: dict[str, int], is_legal: bool) -> None:
    assert (engine().violations(server(**flags), EngineFacts()) == []) is is_legal


def test_absurd_numbers_are_violations_not_errors() -> None:
    args = server(spec_steps=2, spec_topk=1e300, spec_draft_tokens=8)
    assert engine().violations(args, EngineFacts()) == []
    args = server(spec_steps=-5, spec_topk=1e300, spec_draft_tokens=8)
    assert len(engine().violations(args, EngineFacts())) == 1


def test_flags_the_program_does_not_have_are_refused() -> None:
    fake = engine()
    outputs = {}
    for name, command in fake.fact_commands().items():
        done = run_command(command, timeout_s=30)
        outputs[name] = done.stdout + done.stderr
    facts = fake.parse_facts(outputs)
    assert "synthetic" in facts.version
    assert fake.violations(server(spec_steps=2, threads=4), facts) == []
    (violation,) = fake.violations(server(nonsense=1), facts)
    assert violation.message == "--nonsense is not known to this build"


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("fake-server: error: unrecognized arguments: --x", FailureKind.REJECTED_FLAG),
        ("OSError: [Errno 98] Address already in use", FailureKind.PORT_IN_USE),
        ("torch.OutOfMemoryError: CUDA out of memory", FailureKind.OUT_OF_MEMORY),
        ("something else", FailureKind.LAUNCH_CRASH),
    ],
)
def test_exits(log: str, kind: FailureKind) -> None:
    assert engine().classify(1, f"starting\n{log}\n").kind is kind
    assert engine().classify(None, "").kind is FailureKind.NOT_READY


def test_drift_shows_a_draft_that_was_switched_off() -> None:
    args = server(spec_steps=3, threads=2)
    (found,) = engine().drift(args, {"spec-steps": 0, "threads": 2, "model": "other"})
    assert (found.name, found.requested, found.effective) == ("spec-steps", "3", "0")
    assert not found.is_confounder
    (confounder,) = engine().drift(args, {"threads": 8})
    assert confounder.is_confounder


def test_one_launch_measured(tmp_path: Path) -> None:
    fake = engine(behaviour={"step_ms": 0.2, "ttft_ms": 0, "acceptance": [1.0, 0.5]})
    args = fake.canonicalize({"steps": 2, "topk": 1}, SPACE)
    port = free_port()
    prompts = tuple(Prompt(f"p{i}", ({"role": "user", "content": f"Hi {i}"},)) for i in range(8))
    load = LoadPoint(concurrency=2)
    workload = Workload((prompts,), (), (), (load,), Sampling(max_tokens=60), warm_up=0)
    command = fake.command(args, port)
    with ServerProcess.launch(command, port=port, log_path=tmp_path / "log") as process:
        wait_ready(process, fake.probe(args), timeout_s=30, hard_cap_s=30, classify=fake.classify)
        with LoadClient(process.base_url, fake.wire(args), workload, alive=lambda: None) as client:
            effective = fake.parse_effective(client.get_text("/server_info") or "")
            before = client.snapshot(fake.snapshot_paths())
            block = client.run_block(0, prompts, load)
            after = client.snapshot(fake.snapshot_paths())
            assert client.post(str(fake.flush_path())) == 200
    acceptance = fake.acceptance(before, after, block.records)
    assert fake.drift(args, effective) == []
    assert acceptance is not None
    assert acceptance.per_position[0] == pytest.approx(1.0, abs=0.15)
    assert acceptance.length - 1 == pytest.approx(sum(acceptance.per_position))
    assert 2.0 < acceptance.length < 3.0


def test_signals_are_told_by_name() -> None:
    found = engine().classify(-6, "GGML_ASSERT(n <= size)")
    assert found.reason == "killed by SIGABRT: GGML_ASSERT(n <= size)"
    assert engine().classify(3, "").reason == "exited with code 3"
