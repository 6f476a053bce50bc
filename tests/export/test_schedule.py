"""A table of depths by load as a bundle: what it holds, and when it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.config.engine import SglangConfig
from tuner.engines.catalog import get_engine
from tuner.errors import ExportRefused
from tuner.export.bundle import build_bundle
from tuner.export.subject import Provenance, Subject, choose_schedule
from tuner.store.record import (
    ArgsRecord,
    RecommendationRecord,
    ScheduleRecord,
    ScheduleStep,
    TrialRecord,
)

ENGINE = get_engine(
    SglangConfig(
        kind="sglang",
        executable="/opt/sglang/bin/python",
        model="/models/big",
        draft_model="/models/eagle3",
        args={"tp-size": 8, "speculative-algorithm": "EAGLE3", "speculative-num-steps": 3},
    )
)
TABLE = ENGINE.scheduled(ENGINE.fixed_args(), {1: 5, 8: 2, 32: 0}, "")
SINGLE = TrialRecord(
    number=4, state="complete", requested_args=ArgsRecord(**ENGINE.fixed_args().to_json())
)
PROVENANCE = Provenance(study="big", engine={"kind": "sglang", "version": "0.5.23"}, load="c1")


def chosen(allow: frozenset[str] = frozenset(), **changes: Any) -> Subject:
    assert TABLE is not None
    steps = [
        ScheduleStep(load=f"c{n}", concurrency=n, depth=d, ratio=1.4, low=1.3, high=1.5)
        for n, d in ((1, 5), (8, 2), (32, 0))
    ]
    fields: dict[str, Any] = {
        "verdict": "use", "steps": steps, "single": 4, "single_depth": 2, "ratio": 1.1,
        "low": 1.05, "high": 1.15, "launches": 4, "sweep": ["c1", "c8", "c32", "c8", "c1"],
        "server_args": ArgsRecord(**TABLE.args.to_json()), "files": dict(TABLE.files),
        "fidelity": "match",
    }  # fmt: skip
    schedule = ScheduleRecord(**(fields | changes))
    found = RecommendationRecord(verdict="use", trial=4, schedule=schedule)
    return choose_schedule([SINGLE], found, PROVENANCE, allow=allow)


def test_the_bundle_starts_the_table_wherever_it_lies(tmp_path: Path) -> None:
    files = build_bundle(ENGINE, chosen(), folder=tmp_path, targets=("kubernetes",))
    assert '"$here"/adaptive.json' in files["launch.sh"]
    assert json.loads(files["adaptive.json"])["3"] == {"candidate_steps": [2]}
    config = next(iter(yaml.safe_load_all(files["kubernetes.yaml"])))
    assert config["data"]["adaptive.json"] == files["adaptive.json"]
    manifest = json.loads(files["manifest.json"])
    assert manifest["trial"] is None
    assert manifest["server"]["effective"] == {}
    assert manifest["confirmed"]["single"] == 4
    assert manifest["valid_for"]["load"] == "c1, c8, c32"
    assert "adaptive.json" in manifest["files"]


def test_the_report_shows_a_depth_per_load(tmp_path: Path) -> None:
    report = build_bundle(ENGINE, chosen(), folder=tmp_path)["REPORT.md"]
    assert report.startswith("# big: the table of depths by load\n")
    assert "**1.10x of trial 4** (95 % interval [1.05, 1.15])" in report
    assert "| c32 | 0 | 1.40x [1.30, 1.50] |" in report


@pytest.mark.parametrize(
    ("changes", "message", "flag"),
    [
        ({"verdict": "keep_single"}, "must beat the best single server", "unconfirmed"),
        ({"fidelity": "9 of 48 answers"}, "must answer as the baseline does", "unfaithful"),
        ({"is_simulated": True}, "must be measured on a real server", "simulated"),
    ],
)
def test_it_is_refused_without_a_flag_that_is_kept(
    changes: dict[str, Any], message: str, flag: str
) -> None:
    with pytest.raises(ExportRefused, match=f"study big, schedule: {message}"):
        chosen(**changes)
    assert chosen(frozenset({flag}), **changes).flags == (flag,)


def test_without_a_table_there_is_nothing_to_export() -> None:
    with pytest.raises(ExportRefused, match="got none: One depth is best"):
        chosen(server_args=ArgsRecord(), reasons=["One depth is best at every load."])
    with pytest.raises(ExportRefused, match="got none: none was measured"):
        choose_schedule([SINGLE], RecommendationRecord(verdict="use", trial=4), PROVENANCE)
