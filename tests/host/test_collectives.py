"""The all-reduce probe: sizes, environments, rows, what is hopeless; one real group on gloo."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tuner.host.collectives import (
    CollectiveRow,
    ProbeSettings,
    environments,
    hopeless,
    message_sizes,
    parse_rows,
    probe,
    request_of,
)

SETTINGS = ProbeSettings("python", ranks=2, sizes=(128, 4096), backend="gloo", repeats=4)


def answer(seconds: float, correct: bool = True) -> str:
    rows = [{"bytes": s, "seconds": [seconds] * 4, "correct": correct} for s in (128, 4096)]
    return f"a warning\n\nTUNER-COLLECTIVES {json.dumps({'rows': rows, 'error': ''})}\n"


def test_message_sizes_are_hidden_times_tokens_times_bytes() -> None:
    assert message_sizes({"hidden_size": 7168}, batches=(1,), tokens=(1, 4)) == (14336, 57344)
    nested = {"text_config": {"hidden_size": 64}, "hidden_size": 9}
    assert message_sizes(nested, batches=(1, 2), tokens=(2,)) == (256, 512)
    with pytest.raises(ValueError, match="hidden_size must be a positive number, got None"):
        message_sizes({})


def test_environments_begin_with_the_one_that_sets_nothing() -> None:
    found = environments({"NCCL_ALGO": ("Ring", None), "NCCL_PROTO": (None, "LL")})
    assert found[0] == {"NCCL_ALGO": None, "NCCL_PROTO": None}
    assert len(found) == 4
    assert {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"} in found


def test_each_environment_is_compared_with_the_first() -> None:
    outputs = {"None": answer(2e-5), "Ring": answer(1e-5), "Tree": "Traceback: killed"}
    asked: list[Mapping[str, object]] = []

    def run(
        argv: Sequence[str], env: Mapping[str, str | None], stdin: str, timeout_s: float
    ) -> str:
        assert argv[0] == "python"
        assert Path(argv[1]).name == "collectives_worker.py"
        asked.append(json.loads(stdin))
        assert timeout_s == SETTINGS.timeout_s + 60
        return outputs[str(env["NCCL_ALGO"])]

    candidates = environments({"NCCL_ALGO": (None, "Ring", "Tree")})
    rows = [row for group in probe(SETTINGS, candidates, run) for row in group]
    assert [row.ratio for row in rows] == [1.0, 1.0, 0.5, 0.5, None, None]
    assert rows[2].median_us == pytest.approx(10.0)
    assert rows[4].error == "the worker gave no answer"
    assert asked[0]["sizes"] == [128, 4096]
    assert hopeless(rows) == [{"NCCL_ALGO": "Tree"}]


def test_wrong_sums_are_no_time() -> None:
    rows = parse_rows(answer(1e-6, correct=False), {"NCCL_PROTO": "LL128"}, (128, 4096))
    assert all(row.median_us is None and "wrong sums" in row.error for row in rows)
    assert hopeless(rows) == [{"NCCL_PROTO": "LL128"}]


def test_slower_at_one_size_is_not_hopeless() -> None:
    def rows(*ratios: float) -> list[CollectiveRow]:
        return [CollectiveRow({"A": "1"}, 2**i, 1.0, 1.0, r) for i, r in enumerate(ratios)]

    assert hopeless(rows(1.5, 1.0)) == []
    assert hopeless(rows(1.5, 1.04)) == []
    assert hopeless(rows(1.5, 1.06)) == [{"A": "1"}]


@pytest.mark.parametrize(
    "output",
    ["", "TUNER-COLLECTIVES {", "TUNER-COLLECTIVES [1]", 'TUNER-COLLECTIVES {"rows": []}'],
)
def test_an_answer_that_cannot_be_read_is_an_error(output: str) -> None:
    assert all(row.error for row in parse_rows(output, {}, (128,)))


@pytest.mark.e2e
def test_a_real_group_reduces_on_gloo() -> None:
    venv = os.environ.get("TUNER_SGLANG_VENV")
    if not venv:
        pytest.skip("TUNER_SGLANG_VENV is not set")

    def run(
        argv: Sequence[str], env: Mapping[str, str | None], stdin: str, timeout_s: float
    ) -> str:
        del env
        done = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        return done.stdout

    settings = ProbeSettings(
        f"{venv}/bin/python", ranks=2, sizes=(128, 65536), backend="gloo", repeats=5, timeout_s=60
    )
    assert json.loads(request_of(settings))["ranks"] == 2
    (rows,) = list(probe(settings, [{}], run))
    assert [row.bytes for row in rows] == [128, 65536]
    assert all(row.median_us is not None and 0 < row.median_us < 1e6 for row in rows)
