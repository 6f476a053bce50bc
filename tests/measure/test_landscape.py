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
    drafts_by,
    landscape_from_json,
    landscape_json,
    read_landscape,
)

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


def test_the_truth_is_the_fastest_of_each_block(tmp_path: Path) -> None:
    path = tmp_path / "edit.csv"
    path.write_text(TABLE)
    landscape = read_landscape(path)
    assert landscape.speed(landscape.baseline, "c1") == pytest.approx(100 / 0.99)
    assert landscape.ratios("c1")[1] == pytest.approx(0.99 / 0.7)
    assert 0 < landscape.noise("c1") < 0.05


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
