"""The recorder: every server in every round, each launch once, whatever interrupts it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from benchmarks.record_landscapes import Recorder, recorder_of
from tuner.config.loader import load_study
from tuner.measure.landscape import landscape_text, read_landscape
from tuner.search.landscape import landscape_of

STUDY = """
name: recorded
engine: {kind: fake}
space:
  parameters:
    steps: {flag: spec-steps, int: [1, 2]}
workload:
  prompts: {builtin: mixed}
  blocks: 2
  block_size: 1
  held_out: 2
  output_tokens: {max: 8}
  warm_up: 1
objective: {maximize: output_tokens_per_s}
"""


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    (tmp_path / "study.yaml").write_text(textwrap.dedent(STUDY))
    return recorder_of(load_study(tmp_path / "study.yaml"), tmp_path / "recorded.jsonl")


def test_the_order_changes_and_is_complete(recorder: Recorder) -> None:
    first, second = list(recorder.order(1)), list(recorder.order(3))
    assert len(first) == 3
    digests = [[args.digest for _, args in order] for order in (first, second)]
    assert sorted(digests[0]) == sorted(digests[1])
    assert list(recorder.order(1)) == first


def test_every_server_is_recorded_once_and_a_cut_line_again(
    recorder: Recorder, tmp_path: Path
) -> None:
    records = recorder.run(repeats=1, seed=1)
    assert sorted(record.state for record in records) == ["baseline", "complete", "complete"]
    assert recorder.run(repeats=1, seed=1) == records
    lines = recorder.log.read_text().splitlines()
    recorder.log.write_text("\n".join([*lines[:2], lines[2][:40]]))
    assert len(recorder.known()) == 2
    path = tmp_path / "recorded.json"
    path.write_text(landscape_text(landscape_of("recorded", records)))
    landscape = read_landscape(path)
    assert len(landscape.servers) == 3
    assert landscape.speed(landscape.baseline, "c1") > 0
