"""A recorded landscape through the product's own loop, store and ranking, and back again."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tuner.args import ServerArgs
from tuner.config.loader import load_study
from tuner.config.study import SearchConfig
from tuner.errors import TrialFailure, UsageError
from tuner.events import Event, RunFinished
from tuner.measure.landscape import RecordedBlock, landscape_text, read_landscape
from tuner.measure.records import LoadPoint, Prompt
from tuner.search.landscape import ground_of, landscape_of
from tuner.search.loop import RunResult, run_study
from tuner.search.replay_runner import (
    ReplayRunner,
    acceptance_of,
    replayed_block,
    rows_of_block,
)
from tuner.space import Parameter

STUDY = """
name: replayed
engine: {kind: replay, landscape: table.csv}
space:
  parameters:
    n: {flag: size-n, choices: [3, 4, 6, 12]}
    m: {flag: size-m, choices: [4, 8, 16]}
workload: {prompts: {builtin: mixed}, blocks: 4, block_size: 2, held_out: 8}
objective: {maximize: output_tokens_per_s}
budget: {launches: 8}
fidelity: {compare: off}
"""


def table() -> str:
    """Eleven lookups on four prompts, two launches each; 4 and 8 are best, 12 and 16 fail."""
    rows = ["repeat,spec_type,size-n,size-m,launch_s,prompt,tokens,decode_ms,draft_n,"
            "draft_accepted,failure"]  # fmt: skip
    for repeat in (0, 1):
        rows += [f"{repeat},none,,,2.0,{p},100,{1000 + 5 * p + repeat},0,0," for p in range(4)]
        for n in (3, 4, 6, 12):
            for m in (4, 8, 16):
                if (n, m) == (12, 16):
                    rows.append(f"{repeat},ngram-simple,{n},{m},1.0,,,,,,out_of_memory")
                    continue
                accepted = 60 - 4 * abs(n - 4) - abs(m - 8)
                drafted = accepted + 2 * m
                wall = 10 * (100 - accepted) + 2 * drafted + 10 * repeat
                rows += [
                    f"{repeat},ngram-simple,{n},{m},2.0,{p},100,{wall + 5 * p},{drafted},"
                    f"{accepted}," for p in range(4)
                ]  # fmt: skip
    return "\n".join(rows) + "\n"


Replayed = tuple[RunResult, list[Event], Path]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    folder = tmp_path_factory.mktemp("replayed")
    (folder / "table.csv").write_text(table())
    (folder / "study.yaml").write_text(textwrap.dedent(STUDY))
    events: list[Event] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = run_study(load_study(folder / "study.yaml"), observer=events.append)
    return result, events, folder


def test_a_replayed_study_ends_with_a_labelled_answer(replayed: Replayed) -> None:
    result, events, folder = replayed
    recommendation = result.recommendation
    assert (recommendation.verdict, recommendation.is_simulated) == ("use", True)
    landscape = read_landscape(folder / "table.csv")
    chosen = ServerArgs.from_json(recommendation.server_args.model_dump())
    digests = [server.args.digest for server in landscape.servers]
    truth = dict(zip(digests, landscape.ratios("c1"), strict=True))
    assert truth[chosen.digest] > 0.95 * max(value for value in truth.values() if value == value)
    assert all(record.is_simulated for record in result.records)
    assert result.records[0].seconds.launch == pytest.approx(2.0)
    assert any(isinstance(event, RunFinished) for event in events)


def test_its_records_hold_counts_by_block(replayed: Replayed) -> None:
    complete = [r for r in replayed[0].records if r.state == "complete"]
    counts = complete[0].load_points[0].block_counts
    assert counts["tokens"] == [100.0] * 4
    assert [t - a for t, a in zip(counts["tokens"], counts["accepted"], strict=True)] == counts[
        "steps"
    ]
    assert all(record.predicted for record in replayed[0].records[2:])


def test_a_study_becomes_a_landscape_that_tells_the_same(
    replayed: Replayed, tmp_path: Path
) -> None:
    records = replayed[0].records
    path = tmp_path / "again.json"
    path.write_text(landscape_text(landscape_of("again", records, note="a test")))
    again = read_landscape(path)
    assert (again.origin, again.note) == ("generated", "a test")
    best = max((r for r in records if r.state == "complete"), key=lambda r: r.value or 0)
    server = next(s for s in again.servers if s.args.digest == best.digest)
    assert again.speed(server, "c1") == pytest.approx(best.value, rel=1e-3)


def test_a_value_that_is_the_engines_default_is_written_down(replayed: Replayed) -> None:
    """Canonical arguments leave defaults out; a landscape is read without the engine."""
    records = replayed[0].records
    parameters = (
        Parameter("depth", "int", (3, 5), flag="draft-n"),
        Parameter("inner", "int", (3, 5), flag="config.depth"),
    )
    noted = [
        record.model_copy(update={"params": {"depth": 5, "inner": 3} if record.params else {}})
        for record in records
    ]
    landscape = landscape_of("again", noted, parameters=parameters)
    assert [s.args.flags.get("draft-n") for s in landscape.servers if s.is_baseline] == [None]
    assert {s.args.flags.get("draft-n") for s in landscape.servers if not s.is_baseline} == {5}
    assert all("config.depth" not in s.args.flags for s in landscape.servers)


def test_a_landscape_does_not_say_where_files_lay(replayed: Replayed) -> None:
    records = replayed[0].records
    args = records[0].requested_args.model_copy(update={"flags": {"draft": "/home/me/draft.gguf"}})
    moved = [record.model_copy(update={"requested_args": args}) for record in records]
    landscape = landscape_of("again", moved)
    assert landscape.servers[0].args.flags == {"draft": "draft.gguf"}


def test_a_study_without_a_baseline_is_no_landscape() -> None:
    with pytest.raises(UsageError, match="must hold a measured baseline"):
        landscape_of("empty", [])


def test_a_ground_has_every_recorded_server_but_the_baseline(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(table())
    landscape = read_landscape(tmp_path / "table.csv")
    ground = ground_of(landscape, SearchConfig(), 10)
    assert [p.name for p in ground.space.parameters] == ["size-n", "size-m"]
    assert len(ground.survey.servers) == 12
    assert ground.survey.servers[0][0] == {"size-n": 3, "size-m": 4}


def test_the_same_trial_is_served_the_same_launch(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(table())
    landscape = read_landscape(tmp_path / "table.csv")
    args = landscape.servers[1].args
    picks = [ReplayRunner(landscape, seed=3).pick(args, f"trial-{i}") for i in range(20)]
    assert picks == [ReplayRunner(landscape, seed=3).pick(args, f"trial-{i}") for i in range(20)]
    assert len({id(pick) for pick in picks}) == 2
    with pytest.raises(TrialFailure, match="not recorded in table"):
        ReplayRunner(landscape).pick(ServerArgs({"other": 1}), "trial-1")


ROWS = tuple(RecordedBlock(10.0 + i, 1.0, 2, 8.0, 6.0, 4.0 + i, 50.0) for i in range(6))


def test_rows_are_dealt_out_to_blocks() -> None:
    assert [len(rows_of_block(ROWS, i, 3)) for i in range(3)] == [2, 2, 2]
    assert [len(rows_of_block(ROWS, i, 4)) for i in range(4)] == [2, 2, 1, 1]
    assert rows_of_block(ROWS[:2], 3, 4) == [ROWS[1]]


def test_a_replayed_block_has_the_recorded_tokens_and_time() -> None:
    block = replayed_block(2, LoadPoint(concurrency=2), (Prompt("p", ()),), ROWS[:3], 5.0)
    assert (block.start_s, block.end_s) == (5.0, 8.0)
    assert sum(r.output_tokens or 0 for r in block.records) == 33
    assert len(block.records) == 6
    first = block.records[0]
    assert ((first.first_s or 0) - first.sent_s) == pytest.approx(0.05)


def test_counters_are_pooled_or_unknown() -> None:
    pooled = acceptance_of(ROWS[:2])
    assert pooled is not None
    assert (pooled.steps, pooled.drafted, pooled.accepted) == (9, 16, 12)
    assert acceptance_of([RecordedBlock(10.0, 1.0)]) is None
