"""Untimed launches, from the study file to the screens: NCCL's own log, the parts of a step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.config.engine import FakeConfig, parse_engine
from tuner.config.loader import load_study
from tuner.engines.fake import FakeEngine
from tuner.events import Event, Notice
from tuner.search import loop, untimed
from tuner.search.loop import RunResult, run_study
from tuner.search.untimed import Looks, looks_of, planned_looks

StudyYaml = Callable[..., str]
Run = Callable[..., RunResult]
LOG = """\
NCCL version 2.27.3+cuda12.9
ncclCommInitRank comm 0x55d0 rank 0 nranks 4 cudaDev 0 - Init START
Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
AllReduce: 14336 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}
"""
SLOW: dict[str, Any] = {"verify_cost": 1.0, "print_env": ["NCCL_DEBUG", "NCCL_DEBUG_FILE"]}
"""Drafting never pays: nothing is confirmed, which would cost launches."""
SPACE: dict[str, Any] = {
    "parameters": {
        "steps": {"flag": "spec-steps", "choices": [2, 3]},
        "proto": {"env": "NCCL_PROTO", "choices": ["unset", "LL"]},
    },
    "start": [{"steps": 2, "proto": "LL"}, {"steps": 3, "proto": "LL"},
              {"steps": 2, "proto": "unset"}],
}  # fmt: skip


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def run(work: Path, study_yaml: StudyYaml, events: list[Event]) -> Run:
    def go(space: dict[str, Any] | None = None, launches: int = 2, **engine: Any) -> RunResult:
        behaviour = {"step_ms": 2.0, "nccl_log": LOG, "metrics_prefix": "sglang:", **SLOW}
        behaviour |= engine.pop("behaviour", {})
        text = study_yaml(
            engine={"kind": "fake", "behaviour": behaviour, **engine},
            space=SPACE if space is None else space,
            search={"sampler": "random", "pruner": "none", "baseline_every": 0},
            budget={"launches": launches},
            confirm={"finalists": 1, "rounds": 2, "max_rounds": 2},
        )
        (work / "demo.yaml").write_text(text)
        return run_study(load_study(work / "demo.yaml"), observer=events.append)

    return go


def notices(events: list[Event], word: str) -> list[str]:
    return [e.message for e in events if isinstance(e, Notice) and word in e.message]


def test_every_nccl_environment_is_launched_once(
    run: Run, events: list[Event], work: Path
) -> None:
    result = run(nccl_probe="every", launches=4)
    assert notices(events, "untimed") == ["untimed launch: NCCL's own log with NCCL_PROTO=LL"]
    (said,) = notices(events, "NCCL 2.27.3")
    assert said == (
        "NCCL 2.27.3+cuda12.9, 4 ranks, 1 channels via P2P/CUMEM, "
        "AllReduce of 14336 bytes: Ring Simple"
    )
    wanted = "NCCL_PROTO=LL was asked for, and AllReduce of 14336 bytes: Ring Simple"
    assert notices(events, "was asked for") == [wanted]
    warned = {r.params.get("proto"): wanted in r.warnings for r in result.records[1:]}
    assert warned == {"LL": True, "unset": False}
    (report,) = (work / "results").glob("*/untimed/nccl-*/report.json")
    document = json.loads(report.read_text())
    assert document["read"] == {"NCCL_PROTO": "LL"}
    assert document["findings"] == [wanted]
    assert "env NCCL_DEBUG=INFO" in (report.parent / "server.log").read_text()
    measured = [*work.glob("results/*/trials/*/server.log")]
    assert len(measured) == 4
    assert all("env NCCL_DEBUG=(unset)" in log.read_text() for log in measured)


def test_finalists_are_timed_and_explained_as_measured(
    run: Run, events: list[Event], work: Path, tuner: Callable[..., Any]
) -> None:
    """step 2 ms; drafting 0.08 of it per draft step, verifying 1 + 0.03 per token."""
    space = {"parameters": {"steps": SPACE["parameters"]["steps"]}}
    cheap = {"verify_cost": 0.03}
    result = run(space, measure_cycle="finalists", behaviour=cheap)
    (told,) = notices(events, "untimed launch: the parts of a step")
    timed = [record for record in result.records if record.cycle]
    assert [record.number for record in timed] == [int(told.rsplit(" ", 1)[1])]
    steps = timed[0].params["steps"]
    assert timed[0].cycle["draft"] == pytest.approx(0.002 * 0.08 * steps)
    assert timed[0].cycle["verify"] == pytest.approx(0.002 * (1 + 0.03 * steps))
    assert "extend" not in timed[0].cycle
    document = json.loads(tuner("explain", "demo", "--json").stdout)
    assert document["cycle"]["basis"] == "measured"
    assert document["cycle"]["verify"] == pytest.approx(timed[0].cycle["verify"])
    again = run(space, measure_cycle="finalists", behaviour=cheap)
    assert [r.cycle for r in again.records] == [r.cycle for r in result.records]
    assert len(notices(events, "untimed launch")) == 1, "what is known is not launched again"


def test_an_untimed_launch_that_fails_is_told_and_no_more(run: Run, events: list[Event]) -> None:
    overrides = [{"when": {"env:NCCL_DEBUG": "INFO"}, "then": {"exit_code": 3, "exit_log": "no"}}]
    result = run(nccl_probe="every", behaviour={"overrides": overrides})
    assert notices(events, "the untimed launch failed")
    assert result.recommendation.verdict in {"use", "keep_baseline"}
    assert all("asked for" not in text for r in result.records for text in r.warnings)


@pytest.mark.parametrize(
    ("section", "has_gpus", "looks"),
    [
        ({"kind": "sglang", "model": "m"}, True, Looks("finalists", "finalists")),
        ({"kind": "sglang", "model": "m"}, False, Looks("finalists", "")),
        ({"kind": "sglang", "model": "m", "measure_cycle": "every", "nccl_probe": "off"}, False,
         Looks("", "every")),
        ({"kind": "vllm", "model": "m"}, True, Looks("finalists", "")),
        ({"kind": "llamacpp", "model": "m"}, True, Looks("", "")),
        ({"kind": "fake"}, True, Looks("", "")),
        ({"kind": "replay", "landscape": "x.csv"}, True, Looks("", "")),
    ],
)  # fmt: skip
def test_what_an_engine_section_asks_for(
    section: dict[str, Any], has_gpus: bool, looks: Looks
) -> None:
    assert looks_of(parse_engine(section), has_gpus=has_gpus) == looks


@pytest.mark.parametrize("word", ["off", "finalists", "every"])
def test_every_word_may_be_written_plainly(work: Path, study_yaml: StudyYaml, word: str) -> None:
    """Plain `off` is a false switch in YAML."""
    text = study_yaml(engine={"nccl_probe": "NP", "measure_cycle": "MC"})
    (work / "s.yaml").write_text(text.replace("NP", word).replace("MC", word))
    engine = load_study(work / "s.yaml").config.engine
    assert (engine.nccl_probe, engine.measure_cycle) == (word, word)  # type: ignore[union-attr]


def test_what_is_only_looked_at_takes_no_time_that_is_needed(
    run: Run, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "wall_left", lambda session: -1.0 if session.history.best() else 9.0)
    result = run(nccl_probe="every", measure_cycle="every")
    assert len(result.records) == 2
    assert notices(events, "untimed") == []


def test_timers_that_said_nothing_are_not_asked_again(tmp_path: Path) -> None:
    args = ServerArgs({"spec-steps": 2}, {})
    engine = FakeEngine(FakeConfig(kind="fake"))
    (tmp_path / "report.json").write_text('{"cycle": {}}')
    results = SimpleNamespace(untimed_folder=lambda name: tmp_path)
    session: Any = SimpleNamespace(
        bench=SimpleNamespace(engine=engine), opened=SimpleNamespace(results=results)
    )
    assert engine.is_speculative(args)
    assert untimed.timed_cycle(session, args, 3) == {}, "nothing is launched, nobody is told"


def test_a_record_that_was_corrected_meanwhile_stays_corrected(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A neighbour's baseline shows a drift while this trial's server is timed."""

    def timed(session: Any, args: Any, number: int) -> dict[str, float]:
        record = next(r for r in session.history.records if r.number == number)
        session.history.replace(record.model_copy(update={"warnings": ["corrected"]}))
        return {"verify": 0.001}

    monkeypatch.setattr(untimed, "timed_cycle", timed)
    result = run(measure_cycle="every")
    (trial,) = result.records[1:]
    assert (trial.warnings, trial.cycle) == (["corrected"], {"verify": 0.001})


@pytest.mark.parametrize(
    ("nccl", "cycle", "launches"),
    [("", "", 0), ("every", "", 2), ("", "every", 3), ("finalists", "", 1), ("", "finalists", 1),
     ("every", "every", 5), ("finalists", "finalists", 2), ("every", "finalists", 3)],
)  # fmt: skip
def test_planned_looks(nccl: str, cycle: str, launches: int) -> None:
    """Two NCCL environments, three servers that draft, one finalist."""
    servers = [
        ServerArgs({"spec-steps": steps} if steps else {}, {"NCCL_PROTO": proto})
        for steps, proto in ((2, None), (2, "LL"), (3, "LL"), (0, "Simple"))
    ]
    engine = FakeEngine(FakeConfig(kind="fake"))
    most = {"every": 4, "finalists": 1}
    assert planned_looks(engine, Looks(nccl, cycle), servers, most) == launches


def test_an_engine_that_times_nothing_is_asked_once(run: Run, events: list[Event]) -> None:
    """Its page has other names than the adapter reads, as an older version's."""
    silent = {"metrics_prefix": "older:", "metrics_status": 501}
    space = {"parameters": {"steps": SPACE["parameters"]["steps"]}}
    result = run(space, launches=3, measure_cycle="every", behaviour=silent)
    assert len(result.records) == 3
    assert [bool(record.cycle) for record in result.records] == [False] * 3
    assert len(notices(events, "untimed launch: the parts")) == 1
