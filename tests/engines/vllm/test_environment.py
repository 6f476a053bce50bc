"""NCCL variables under vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.engines.base import EngineFacts
from tuner.engines.vllm.case import Case
from tuner.engines.vllm.environment import collective_drifts, env_text
from tuner.engines.vllm.rules import broken_rules

TWO = {"tensor-parallel-size": 2}


def broken(flags: dict[str, Any], **env: str | None) -> list[str]:
    case = Case(ServerArgs({"model": "m", **flags}, env), EngineFacts())
    return [violation.rule for violation in broken_rules(case)]


def test_values_become_text() -> None:
    assert [env_text(v) for v in ("unset", True, 3, "LL")] == [None, "1", "3", "LL"]


def test_nccl_needs_ranks_and_sound_values() -> None:
    assert broken({}, NCCL_PROTO="LL") == ["nccl-needs-ranks"]
    assert broken({}, NCCL_PROTO=None, VLLM_X="1") == []
    assert broken(TWO, NCCL_PROTO="LL") == []
    assert broken({"data-parallel-size": 2}, NCCL_PROTO="LLL") == ["nccl-value"]
    assert broken(TWO, NCCL_ALGO="Ring", VLLM_BATCH_INVARIANT="1") == ["nccl-batch-invariant"]
    assert broken(TWO, NCCL_DEBUG="WARN", VLLM_BATCH_INVARIANT="1") == []


@pytest.mark.parametrize(
    ("backends", "env", "count"),
    [(["CUSTOM", "PYNCCL"], {"NCCL_PROTO": "LL"}, 1), (["PYNCCL"], {"NCCL_PROTO": "LL"}, 0),
     (["NCCL_SYMM_MEM", "CUSTOM"], {"NCCL_PROTO": "LL"}, 0), (["CUSTOM"], {}, 0),
     (["CUSTOM"], {"NCCL_PROTO": None}, 0), (None, {"NCCL_PROTO": "LL"}, 0)],
)  # fmt: skip
def test_what_reduces_before_nccl_is_said(
    backends: list[str] | None, env: dict[str, str | None], count: int
) -> None:
    found = list(collective_drifts(ServerArgs(TWO, env), {"all-reduce-backends": backends}))
    assert len(found) == count
    assert all("CUSTOM reduces small messages before NCCL" in drift.message for drift in found)
