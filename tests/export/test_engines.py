"""Bundles of the real engine adapters: written, verified, and started with a stub program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner.config.engine import EngineBase, SglangConfig, VllmConfig
from tuner.engines.catalog import get_engine
from tuner.export.bundle import TARGETS, build_bundle, verify_bundle, write_bundle
from tuner.export.subject import Provenance, choose
from tuner.store.record import ArgsRecord, TrialRecord

HOSTILE = "a b 'c' \"d\" $HOME `id` \\ é *\nsecond"

CONFIGS: list[EngineBase] = [
    SglangConfig(
        kind="sglang",
        model="/models/a b/ü",
        draft_model="/models/draft",
        args={
            "tp-size": 8,
            "speculative-algorithm": "EAGLE3",
            "speculative-num-steps": 3,
            "speculative-eagle-topk": 1,
            "speculative-num-draft-tokens": 4,
            "max-running-requests": 16,
            "trust-remote-code": True,
        },
        env={"NCCL_ALGO": "Ring", "SGLANG_X": HOSTILE, "NCCL_DEBUG": None},
    ),
    VllmConfig(
        kind="vllm",
        model="/models/a b/ü",
        draft_model="/models/draft",
        args={
            "tensor-parallel-size": 8,
            "max-num-seqs": 16,
            "speculative-config": {"method": "eagle3", "num_speculative_tokens": 3},
        },
        env={"NCCL_ALGO": "Ring", "VLLM_X": HOSTILE, "NCCL_DEBUG": None},
    ),
]

STUB = """\
#!{python}
import json, os, sys
print(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ)}}))
"""


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.kind)
def test_what_is_exported_is_what_was_measured(config: Any, tmp_path: Path) -> None:
    engine = get_engine(config)
    args = engine.fixed_args()
    record = TrialRecord(
        number=3, state="complete", requested_args=ArgsRecord(**args.to_json()), digest=args.digest
    )
    provenance = Provenance("s", engine={"kind": config.kind, "version": "1.2.3"})
    allow = frozenset({"unconfirmed"})
    subject = choose([record], None, provenance, number=3, allow=allow)
    folder = tmp_path / "de ploy"
    files = build_bundle(engine, subject, folder=folder, targets=TARGETS)
    write_bundle(files, folder)
    assert verify_bundle(folder, engine) == args

    stub = tmp_path / "stub"
    stub.write_text(STUB.format(python=sys.executable))
    stub.chmod(0o755)
    env = {"PATH": "/usr/bin:/bin", "PROGRAM": str(stub), "PORT": "4000", "NCCL_DEBUG": "INFO"}
    done = subprocess.run(
        [str(folder / "launch.sh")], env=env, capture_output=True, check=True, timeout=20
    )
    started = json.loads(done.stdout)
    expected = engine.deploy_command(args, str(folder))
    assert started["argv"] == [*expected.argv[1:], "--host", "127.0.0.1", "--port", "4000"]
    for name, value in expected.env.items():
        assert started["env"].get(name) == value
    assert "NCCL_DEBUG" not in started["env"]
