"""SGLang's adapter through a whole study: a stand-in interpreter starts the fake server where
SGLang would start. Two GPUs, NCCL variables, a reducer that goes before NCCL."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.config.loader import load_study
from tuner.search.loop import RunResult, run_study

Tuner = Callable[..., Any]
STAND_IN = """#!{python}
import json, os, sys
words = sys.argv[1:]
if "-c" in words:
    sys.exit(print("0.5.23"))
if "-m" not in words:
    sys.exit(0)  # the resolver: it knows nothing here
flags, behaviour = {{}}, {behaviour}
for word in words[words.index("-m") + 2:]:
    if word.startswith("--"):
        name, _, value = word[2:].partition("=")
        flags[name] = value or True
    else:
        flags[name] = word
if "help" in flags:
    sys.exit(print("usage: launch_server.py [-h]", *(f"[--{{n}} X]" for n in {known})))
info = {{name.replace("-", "_"): value for name, value in flags.items()}}
info["tp_size"] = int(info["tp_size"])
behaviour["info"] = info
os.execv(sys.executable, [sys.executable, "-m", "tuner.server.fake", "--host", flags["host"],
    "--port", flags["port"], "--model", flags["model-path"],
    "--spec-steps", str(flags.get("speculative-num-steps", 0)),
    "--behaviour", json.dumps(behaviour)])
"""
KNOWN = ["host", "port", "model-path", "tp-size", "enable-metrics", "speculative-algorithm",
         "speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens",
         "speculative-draft-model-path", "disable-custom-all-reduce"]  # fmt: skip
NCCL_LOG = """\
NCCL version 2.27.3+cuda12.9
comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0
Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
AllGather: 64128 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
"""
OFF = "[2026] CustomAllReduceV2 is disabled because your platform lacks GPU P2P capability."


@pytest.fixture
def run(work: Path, study_yaml: Callable[..., str]) -> Callable[..., RunResult]:
    def go(**behaviour: Any) -> RunResult:
        plays = {"step_ms": 2.0, "verify_cost": 1.0, "nccl_log": NCCL_LOG, **behaviour}
        text = STAND_IN.format(python=sys.executable, behaviour=repr(plays), known=repr(KNOWN))
        (work / "python").write_text(text)
        (work / "python").chmod(0o755)
        engine = {
            "kind": "sglang", "model": "/m", "draft_model": "/d", "nccl_probe": "every",
            "executable": "./python", "args": {"tp-size": 2, "speculative-algorithm": "EAGLE3",
            "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 3},
        }  # fmt: skip
        space = {
            "parameters": {
                "steps": {"flag": "speculative-num-steps", "choices": [2]},
                "proto": {"env": "NCCL_PROTO", "choices": ["unset", "LL"]},
            },
            "start": [{"steps": 2, "proto": "LL"}],
        }
        document = study_yaml(
            space=space,
            search={"sampler": "random", "pruner": "none", "baseline_every": 0},
            budget={"launches": 2},
        )
        parts = json.dumps(engine)
        head, _, tail = document.partition("engine:")
        rest = tail[tail.index("\nspace:") :]
        (work / "demo.yaml").write_text(f"{head}engine: {parts}{rest}")
        return run_study(load_study(work / "demo.yaml"))

    return go


def test_what_goes_before_nccl_is_told_in_record_and_export(
    run: Callable[..., RunResult], tuner: Tuner, work: Path
) -> None:
    baseline, trial = run().records
    assert (baseline.state, trial.state) == ("baseline", "complete")
    before = [text for text in trial.warnings if "before NCCL sees them" in text]
    assert len(before) == 1
    assert "SGLang's custom all-reduce" in before[0]
    assert "NCCL_PROTO may do nothing" in before[0]
    assert not [text for text in baseline.warnings if "before NCCL" in text]
    bypassed = (
        "no all-reduce of up to 1048576 bytes went through NCCL, so NCCL_PROTO may do nothing"
    )
    assert bypassed in trial.warnings
    done = tuner("export", "demo", "--trial", "1", "--unconfirmed", "--out", "out")
    assert done.exit_code == 0, done.stderr
    report = (work / "out" / "REPORT.md").read_text()
    assert f"- {bypassed}\n" in report
    assert "NCCL_DEBUG" not in (work / "out" / "server.env").read_text()


def test_a_reducer_that_its_own_log_calls_off_is_no_warning(
    run: Callable[..., RunResult],
) -> None:
    log = NCCL_LOG + "AllReduce: 14336 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n"
    baseline, trial = run(startup_log=OFF, nccl_log=log).records
    assert trial.effective_args["custom-all-reduce"].startswith("off (your platform lacks")
    assert (
        trial.effective_args["custom-all-reduce"] == baseline.effective_args["custom-all-reduce"]
    )
    assert not [text for text in trial.warnings if "NCCL" in text]


def test_a_limit_that_speculation_lowers_silently_is_told(run: Callable[..., RunResult]) -> None:
    """SGLang caps running requests at 48 with speculation; the page size falls to 1 with trees."""
    page = {"model_path": "/m", "tp_size": 2, "speculative_algorithm": "EAGLE3", "page_size": 1}
    plain = {"model_path": "/m", "tp_size": 2, "page_size": 64, "max_running_requests": 4096}
    drafting = {**page, "max_running_requests": 48}
    baseline, trial = run(
        overrides=[
            {"when": {"speculative": False}, "then": {"info": plain}},
            {"when": {"speculative": True}, "then": {"info": drafting}},
        ]
    ).records
    assert baseline.effective_args["max-running-requests"] == 4096
    assert trial.effective_args["max-running-requests"] == 48
    limited = [text for text in trial.warnings if "running requests" in text]
    assert len(limited) == 1
    assert "speculation limits running requests to 48" in limited[0]
    assert any("page-size is 64 in the baseline and 1 here" in text for text in trial.warnings)
    assert not [text for text in baseline.warnings if "page-size" in text]
