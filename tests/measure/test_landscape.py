"""Landscapes: CSV and JSON forms, the truth they hold, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.errors import UsageError
from tuner.measure.landscape import (
    Landscape,
    RecordedBlock,
    RecordedLaunch,
    RecordedServer,
    drafts_by,
    landscape_from_json,
    landscape_json,
    read_landscape,
)
from tuner.measure.landscape_csv import landscape_from_csv

TABLE = """repeat,order,spec_type,params,launch_s,prompt,tokens,decode_ms,draft_n,draft_accepted
0,0,none,{},0.5,0,40,400,0,0
0,0,none,{},0.5,1,60,600,0,0
1,3,none,{},0.6,0,40,440,0,0
1,3,none,{},0.6,1,60,590,0,0
0,1,ngram-simple,"{""size-n"": 4, ""size-m"": 8}",0.5,0,40,200,32,30
0,1,ngram-simple,"{""size-n"": 4, ""size-m"": 8}",0.5,1,60,500,16,12
"""


def test_a_recorded_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "edit.csv"
    path.write_text(TABLE)
    landscape = read_landscape(path)
    assert (landscape.name, landscape.loads, landscape.drafts_by) == ("edit", ("c1",), "lookup")
    baseline, simple = landscape.servers
    assert (baseline.is_baseline, len(baseline.launches)) == (True, 2)
    assert simple.args.flags == {"spec-type": "ngram-simple", "size-n": 4, "size-m": 8}
    first = simple.launches[0].blocks["c1"][0]
    assert (first.tokens, first.steps, first.drafted, first.accepted) == (40, 10, 32, 30)


def test_the_truth_of_two_launches_is_their_mean(tmp_path: Path) -> None:
    path = tmp_path / "edit.csv"
    path.write_text(TABLE)
    landscape = read_landscape(path)
    seconds = math.sqrt(0.400 * 0.440) + math.sqrt(0.600 * 0.590)
    assert not landscape.is_repeated("c1")
    assert landscape.speed(landscape.baseline, "c1") == pytest.approx(100 / seconds)
    assert landscape.ratios("c1")[1] == pytest.approx(seconds / 0.7)
    assert 0 < landscape.noise("c1") < 0.05


def test_the_truth_of_three_launches_is_the_fastest_of_each_block() -> None:
    landscape = repeated([(0.40, 0.60), (0.44, 0.59), (0.90, 0.90)])
    assert landscape.is_repeated("c1")
    assert landscape.speed(landscape.baseline, "c1") == pytest.approx(100 / 0.99)


def test_one_lucky_launch_of_two_is_not_the_truth() -> None:
    steady, lucky = repeated([(0.50, 0.50)] * 2), repeated([(0.50, 0.50), (0.40, 0.40)])
    found = lucky.speed(lucky.baseline, "c1") / steady.speed(steady.baseline, "c1")
    assert found == pytest.approx(math.sqrt(1.25))


def test_all_servers_of_a_table_are_judged_alike() -> None:
    often = repeated([(0.4, 0.6), (0.5, 0.7), (0.5, 0.7)]).baseline
    once = RecordedServer(ServerArgs({"steps": 3}), often.launches[1:2])
    failed = RecordedServer(ServerArgs({"steps": 4}), (RecordedLaunch(failure="crashed"),))
    landscape = Landscape("few", (often, once, once, failed))
    assert not landscape.is_repeated("c1")
    assert landscape.speed(often, "c1") < 100.0
    assert math.isnan(landscape.speed(failed, "c1"))


def repeated(launches: list[tuple[float, float]]) -> Landscape:
    """A baseline of two blocks of 50 tokens, launched as often as there are seconds."""
    made = tuple(
        RecordedLaunch({"c1": tuple(RecordedBlock(50, seconds) for seconds in each)})
        for each in launches
    )
    return Landscape("small", (RecordedServer(ServerArgs(), made, is_baseline=True),))


def test_plain_tables_have_a_row_per_server(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("steps,topk,NCCL_ALGO,output_tokens_per_s,failure\n0,0,,100,\n3,1,Ring,140,\n"
                    "5,8,,,out_of_memory\n")  # fmt: skip
    landscape = read_landscape(path)
    assert landscape.servers[1].args.env == {"NCCL_ALGO": "Ring"}
    assert landscape.ratios("c1")[1] == pytest.approx(1.4)
    assert math.isnan(landscape.ratios("c1")[2])
    assert landscape.servers[2].launches[0].failure == "out_of_memory"


def test_json_holds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "edit.csv"
    path.write_text(TABLE)
    landscape = read_landscape(path)
    text = json.dumps(landscape_json(landscape))
    assert landscape_from_json(json.loads(text)) == landscape


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{}"),
        ("b.json", "[1"),
        ("c.csv", ""),
        ("d.csv", "steps,tokens\n1,x\n"),
        ("e.json", '{"format": "tuner landscape 9"}'),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match="must be a landscape table"):
        read_landscape(tmp_path / name)


def test_a_table_without_baseline_says_so(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    path.write_text("steps,output_tokens_per_s\n2,120\n3,140\n")
    with pytest.raises(UsageError, match="must hold a server without speculation"):
        _ = read_landscape(path).baseline


@pytest.mark.parametrize(
    ("flags", "who"),
    [
        ({"spec-type": "ngram-mod"}, "lookup"),
        ({"speculative-algorithm": "NGRAM"}, "lookup"),
        ({"speculative-config": {"method": "suffix"}}, "lookup"),
        ({"speculative-config": {"method": "eagle3"}}, "model"),
        ({"spec-type": "draft-simple", "model": "/models/ngram.gguf"}, "model"),
    ],
)
def test_who_drafts_is_read_from_the_methods(flags: dict[str, Any], who: str) -> None:
    assert drafts_by([ServerArgs({}), ServerArgs(flags)]) == who


# ---- columns of a CSV ------------------------------------------------------------------------
def table(text: str) -> Landscape:
    return landscape_from_csv("t", text)


def blocks_of(text: str) -> tuple[RecordedBlock, ...]:
    (server,) = table(text).servers
    return server.launches[0].blocks["c1"]


@pytest.mark.parametrize(
    ("columns", "cells", "seconds"),
    [
        ("tokens,seconds", "40,0.5", 0.5),
        ("tokens,decode_ms", "40,250", 0.25),
        ("tokens,output_tokens_per_s", "40,80", 0.5),
        ("output_tokens_per_s", "80", 12.5),  # of 1,000 tokens
        ("tokens,seconds,decode_ms,output_tokens_per_s", "40,0.5,900,7", 0.5),
    ],
)
def test_the_time_of_a_block(columns: str, cells: str, seconds: float) -> None:
    (block,) = blocks_of(f"steps,{columns}\n3,{cells}\n")
    assert block.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("columns", "cells", "steps"),
    [
        ("verify_steps", "10", 10.0),
        ("steps_n", "12", 12.0),
        ("acceptance_length", "2.5", 16.0),
        ("accepted", "30", 10.0),  # what was not accepted took a step of its own
        ("draft_accepted", "40", 1.0),
        ("verify_steps,acceptance_length,accepted", "11,2,30", 11.0),
        ("ttft_ms", "5", None),
    ],
)
def test_the_steps_of_a_block(columns: str, cells: str, steps: float | None) -> None:
    (block,) = blocks_of(f"method,tokens,seconds,{columns}\nngram,40,0.5,{cells}\n")
    assert block.steps == steps


def test_blocks_are_in_the_order_of_their_prompts() -> None:
    found = blocks_of("steps,prompt,tokens,seconds\n3,10,10,1\n3,2,2,1\n3,1,1,1\n")
    assert [block.tokens for block in found] == [1, 2, 10]


@pytest.mark.parametrize(
    ("text", "is_baseline"),
    [
        ("steps,seconds\n0,1\n3,1\n", [True, False]),
        ("spec_type,seconds\nnone,1\noff,1\nngram,1\n", [True, True, False]),
        ("topk,baseline,seconds\n1,yes,1\n2,no,1\n4,TRUE,1\n", [True, False, True]),
        ("steps,baseline,seconds\n0,0,1\n3,1,1\n", [False, True]),  # what is said counts
        ("NCCL_ALGO,seconds\nRing,1\n", [True]),
    ],
)
def test_which_server_is_the_baseline(text: str, is_baseline: list[bool]) -> None:
    assert [server.is_baseline for server in table(text).servers] == is_baseline


@pytest.mark.parametrize(
    ("text", "drafts_by"),
    [
        ("spec_type,seconds\nngram-simple,1\n", "lookup"),
        ("spec_type,seconds\nSUFFIX,1\nnone,1\n", "lookup"),
        ("spec_type,seconds\ndraft-simple,1\n", "model"),
        ("steps,note,seconds\n3,ngram,1\n", "model"),  # only a type says what drafts
    ],
)
def test_what_drafts(text: str, drafts_by: str) -> None:
    assert table(text).drafts_by == drafts_by


def test_flags_variables_and_loads_are_told_apart() -> None:
    text = 'num_steps,NCCL_ALGO,concurrency,params,seconds\n3,,8,"{""x"": true}",1\n'
    (server,) = table(text).servers
    assert server.args == ServerArgs({"num-steps": 3, "x": True}, {})
    assert list(server.launches[0].blocks) == ["c8"]
    named = table("steps,load,seconds\n3,r4,1\n3,c2,1\n").servers[0]
    assert sorted(named.launches[0].blocks) == ["c2", "r4"]
