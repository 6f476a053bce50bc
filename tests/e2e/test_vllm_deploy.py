"""A depth per load on the real vLLM: searched, confirmed, measured as a table, verified.

Needs TUNER_VLLM_VENV (see test_vllm.py). Whether the table wins is the machine's business; that
it is launched, drafts by its batch size and answers as the baseline does is not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.cli.remeasuring import script_start
from tuner.config.engine import parse_engine
from tuner.config.workload import WorkloadConfig
from tuner.engines.base import EngineFacts
from tuner.engines.catalog import get_engine
from tuner.events import ignore
from tuner.export.bundle import start_files, write_files
from tuner.measure.prompts import build_workload
from tuner.measure.records import LoadPoint
from tuner.search.bench import Bench
from tuner.search.local_runner import LocalRunner
from tuner.search.objective import Objective
from tuner.search.remeasure import Contender, remeasure
from tuner.search.sweep import sweep_of

Tuner = Callable[..., Any]
VENV = Path(os.environ.get("TUNER_VLLM_VENV", "/nowhere"))
ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(not VENV.is_dir(), reason="TUNER_VLLM_VENV names no environment"),
    # Some twenty launches of half a minute each: more than a CI run has time for.
    pytest.mark.skipif(
        os.environ.get("TUNER_ALL_E2E") != "1", reason="TUNER_ALL_E2E=1 runs the long ones too"
    ),
]
STUDY: dict[str, Any] = {
    "name": "vllm-loads",
    "engine": {
        "kind": "vllm",
        "executable": str(VENV / "bin" / "python"),
        "model": str(VENV / "models" / "smollm2"),
        "args": {"dtype": "bfloat16", "max-model-len": 2048, "enforce-eager": True,
                 "max-num-seqs": 8},
        "env": {"VLLM_CPU_KVCACHE_SPACE": "1"},
        "launch_timeout": "10m",
    },
    "space": {"parameters": {
        "method": {"flag": "speculative-config.method", "choices": ["ngram"]},
        "k": {"flag": "speculative-config.num_speculative_tokens", "choices": [4]},
    }},
    "workload": {
        "prompts": {"builtin": "mixed", "categories": ["editing"]},
        "blocks": 1, "block_size": 4, "held_out": 4, "output_tokens": {"exactly": 24},
        "load": [{"concurrency": 1}, {"concurrency": 4}], "warm_up": 1,
    },
    "objective": {"maximize": "output_tokens_per_s", "at": {"concurrency": 1}},
    "search": {"sampler": "random", "pruner": "none", "baseline_every": 0, "keep_going": True},
    "confirm": {"finalists": 1, "rounds": 2, "max_rounds": 2},
}  # fmt: skip


@pytest.fixture
def study(tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loads.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
    done = tuner("run", "loads.yaml")
    assert done.exit_code == 0, done.stderr
    return "loads.yaml"


def test_a_bundle_and_a_table_are_served_and_verified(
    tuner: Tuner, study: str, tmp_path: Path
) -> None:
    _verified(tuner, study, tmp_path / "one", "--trial", "1", "--unconfirmed")
    done = tuner("confirm", study, "--schedule", "--json")
    assert done.exit_code == 0, done.stderr
    schedule = json.loads(done.stdout)["recommendation"]["schedule"]
    if not schedule["server_args"]["flags"]:
        pytest.skip(f"this machine gives no table: {schedule['reasons']} {schedule['steps']}")
    spec = schedule["server_args"]["flags"]["speculative-config"]
    assert spec["num_speculative_tokens"] == 4
    manifest = _verified(tuner, study, tmp_path / "table", "--for", "schedule", "--unconfirmed",
                         "--allow", "unfaithful")  # fmt: skip
    assert manifest["confirmed"]["sweep"] == ["c1", "c4", "c1"]


def _verified(tuner: Tuner, study: str, out: Path, *how: str) -> dict[str, Any]:
    done = tuner("export", study, "--out", str(out), *how)
    assert done.exit_code == 0, done.stderr
    done = tuner("verify", str(out), "--json")
    document = json.loads(done.stdout)
    checks = {each["name"]: each for each in document["checks"]}
    assert checks["server"]["ok"] is True, document
    assert checks["outputs"]["ok"] is not None, document
    assert document["ratio"] > 0
    assert document["differences"] == []
    found: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return found


def test_a_table_is_started_by_its_script_under_a_moving_load(tmp_path: Path) -> None:
    drafting = {"speculative-config.method": "ngram",
                "speculative-config.num_speculative_tokens": 4}  # fmt: skip
    args = {**STUDY["engine"]["args"], **drafting}
    engine = get_engine(parse_engine({**STUDY["engine"], "args": args, "launch_timeout": 600.0}))
    table = engine.scheduled(engine.fixed_args(), {1: 4, 4: 0}, "")
    assert table is not None
    assert engine.violations(table.args, EngineFacts()) == []
    write_files(start_files(engine, table.args, "Starts the table."), tmp_path)
    loads = (LoadPoint(concurrency=1), LoadPoint(concurrency=4))
    config = WorkloadConfig.model_validate({**STUDY["workload"], "load": [{"concurrency": 1}]})
    workload = replace(build_workload(config, 0), loads=sweep_of(loads))
    objective = Objective("output_tokens_per_s", maximize=True, load=loads[0])
    bench = Bench(
        "table", engine, EngineFacts(), workload, objective, 600.0, ignore, LocalRunner()
    )
    contender = Contender(1, "table", table.args, script_start(tmp_path))
    (found,) = remeasure(bench, [contender], 1, tmp_path / "logs")
    assert found.launch.loads == ["c1", "c4", "c1"]
    assert all(value > 0 for value in found.launch.per_block)
    assert found.effective["speculative-config.method"] == "ngram"
    assert "schedule-dropped" not in found.effective
    assert all(record.ok for record in found.answers)
