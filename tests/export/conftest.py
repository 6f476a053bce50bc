"""A small engine whose deployable files are known, and a study with a confirmed server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tuner.args import ServerArgs
from tuner.engines.dotenv import parse_env, render_env
from tuner.export.subject import Provenance, Subject, choose
from tuner.server.command import GenerationCheck, LaunchCommand, ReadyProbe
from tuner.store.record import (
    ArgsRecord,
    FinalistRecord,
    RecommendationRecord,
    Seconds,
    TrialRecord,
)

FLAGS: dict[str, Any] = {
    "model-path": "/models/big",
    "tp-size": 8,
    "speculative-num-steps": 3,
    "trust-remote-code": True,
}


class PlainEngine:
    """Writes its flags as YAML and starts `program -m server --config FOLDER/server.yaml`."""

    kind = "sglang"

    def __init__(self, program: str = "/opt/engine/bin/python") -> None:
        self.program = program

    def probe(self, args: ServerArgs) -> ReadyProbe:
        return ReadyProbe("/health", GenerationCheck("/generate", {}, bool))

    def is_lossy(self, args: ServerArgs) -> bool:
        return "accept-threshold" in args.flags

    def render_config(self, args: ServerArgs) -> dict[str, str]:
        text = yaml.safe_dump(dict(args.flags), allow_unicode=True)
        return {"server.yaml": text, "server.env": render_env(args.env)}

    def parse_config(self, files: Mapping[str, str]) -> ServerArgs:
        return ServerArgs(yaml.safe_load(files["server.yaml"]), parse_env(files["server.env"]))

    def deploy_command(self, args: ServerArgs, folder: str) -> LaunchCommand:
        argv = (self.program, "-m", "server", "--config", f"{folder}/server.yaml")
        return LaunchCommand(argv, {**args.env, "PYTHONUNBUFFERED": "1"})


@pytest.fixture
def engine() -> PlainEngine:
    return PlainEngine()


def trial(number: int = 5, **changes: Any) -> TrialRecord:
    record = TrialRecord(
        number=number,
        state="complete",
        params={"steps": 3},
        requested_args=ArgsRecord(flags=FLAGS, env={"NCCL_ALGO": "Ring", "NCCL_DEBUG": None}),
        digest="d" * 16,
        effective_digest="e" * 16,
        value=2661.0,
        half_width=28.0,
        vs_baseline=1.39,
        acceptance_length=2.66,
        metrics={"output_tokens_per_s": 2661.0, "ttft_p95_ms": 176.0},
        seconds=Seconds(total=238.0),
    )
    return record.model_copy(update=changes)


def confirmed(**changes: Any) -> RecommendationRecord:
    record = RecommendationRecord(
        verdict="use",
        trial=5,
        server_args=trial().requested_args,
        digest="d" * 16,
        ratio=1.38,
        low=1.36,
        high=1.40,
        fidelity="match",
        smallest_detectable=1.02,
        reasons=["Trials 5 and 17 differ by less than the noise (0.3% < 1.1%)."],
        finalists=[
            FinalistRecord(
                trial=5,
                digest="d" * 16,
                ratio=1.38,
                low=1.36,
                high=1.40,
                launches=4,
                fidelity="match",
                value=2640.0,
            )
        ],
        objective="maximize output_tokens_per_s at c1",
        load="c1",
        finished_utc="2026-11-02T11:40:00Z",
    )
    return record.model_copy(update=changes)


PROVENANCE = Provenance(
    study="big",
    objective="maximize output_tokens_per_s at c1",
    engine={"kind": "sglang", "version": "0.5.23"},
    digests={"study": "5" * 16, "prompts": "6" * 16},
    fingerprint={"gpus": ["NVIDIA H200"] * 8, "driver": "580.10"},
    load="c1",
)


@pytest.fixture
def subject() -> Subject:
    baseline = trial(0, state="baseline", params={})
    return choose([baseline, trial()], confirmed(), PROVENANCE)


@pytest.fixture
def show() -> Any:
    """JSON with sorted keys, for messages."""
    return lambda value: json.dumps(value, sort_keys=True)
