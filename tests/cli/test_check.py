"""`tuner check`: errors with places, the counted space, cost, warnings; nothing is launched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tuner.cli.app import build_app
from tuner.cli.check import (
    check_lines,
    check_study,
    measuring_seconds,
    planned_launches,
)
from tuner.config.loader import load_study
from tuner.config.workload import LoadConfig, OutputTokensConfig, PromptsConfig, WorkloadConfig
from tuner.store.database import StudyMeta, open_store
from tuner.store.place import place_of
from tuner.store.record import Seconds, TrialRecord

Golden = Callable[[str, str], None]

FAKE = """\
name: demo
engine: {kind: fake}
space:
  parameters:
    steps: {flag: spec-steps, int: [1, 2]}
    topk: {flag: spec-topk, choices: [1, 2]}
    tokens: {flag: spec-draft-tokens, choices: [4, 5]}
  start: [{steps: 1, topk: 1, tokens: 4}]
workload:
  prompts: {builtin: mixed}
  blocks: 2
  block_size: 2
  held_out: 4
  output_tokens: {max: 60}
objective: {maximize: output_tokens_per_s}
search: {sampler: random, seed: 7}
budget: {launches: 4}
confirm: {finalists: 2, rounds: 3}
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "demo.yaml"
    path.write_text(FAKE)
    return path


def tuner(*arguments: str) -> Any:
    return CliRunner().invoke(build_app(), ["check", *arguments], prog_name="tuner")


def test_the_space_is_counted(study: Path, golden: Golden) -> None:
    report = check_study(study)
    assert report.space == {"points": 8, "distinct": 4, "infeasible": 2, "duplicates": 2}
    assert (report.launches, report.confirm_launches, report.confirm_launches_most) == (4, 9, 18)
    assert report.seconds == pytest.approx(13 * 4)
    assert report.first[:2] == (
        "baseline: speculation off",
        "steps=1 topk=1 tokens=4 (start point)",
    )
    golden("check", "\n".join(check_lines(report)) + "\n")


def test_nothing_is_written_or_launched(study: Path) -> None:
    assert tuner(str(study)).exit_code == 0
    assert [path.name for path in study.parent.iterdir()] == ["demo.yaml"]


def test_the_document(study: Path) -> None:
    found = tuner(str(study), "--json")
    document = json.loads(found.stdout)
    assert document["ok"] is True
    assert document["errors"] == []
    assert document["space"]["distinct"] == 4
    assert document["launches"] == 4
    assert document["estimated_seconds"] == 52
    assert [(rule["kind"], rule["points"]) for rule in document["rules"]] == [
        ("infeasible", 2),
        ("duplicate", 2),
    ]


def test_every_error_is_in_the_document(study: Path) -> None:
    study.write_text(FAKE.replace("blocks: 2", "blocks: none").replace("seed: 7", "sed: 7"))
    found = tuner(str(study), "--json")
    assert found.exit_code == 2
    assert found.stderr == ""
    document = json.loads(found.stdout)
    assert document["ok"] is False
    places = [(error["line"], error["path"]) for error in document["errors"]]
    assert places == [(11, "workload.blocks"), (16, "search.sed")]
    assert all(error["message"] and error["file"] for error in document["errors"])


def test_errors_are_printed_with_a_count(study: Path) -> None:
    study.write_text(FAKE.replace("blocks: 2", "blocks: none"))
    found = tuner(str(study))
    assert found.exit_code == 2
    assert found.stdout == ""
    assert found.stderr.splitlines()[0].startswith(f"{study}:11:11: workload.blocks: ")
    assert found.stderr.splitlines()[-1] == "1 error, nothing was launched."


def test_an_engine_that_is_not_here_is_a_warning(study: Path) -> None:
    text = FAKE.replace("{kind: fake}", "{kind: llamacpp, model: m.gguf, executable: /nowhere/x}")
    study.write_text(text.replace("spec-steps", "spec-draft-n-max"))
    report = check_study(study)
    assert any("/nowhere/x" in text for text in report.warnings)
    assert report.problems == ()


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
def test_an_engine_that_is_not_here_is_said_once(study: Path, kind: str) -> None:
    study.write_text(
        f"name: gone\nengine: {{kind: {kind}, executable: /no/such/python, model: m}}\n"
        "space: {parameters: {k: {flag: seed, int: [1, 3]}}}\n"
        "workload: {prompts: {builtin: mixed}}\nobjective: {maximize: output_tokens_per_s}\n"
    )
    about = [text for text in check_study(study).warnings if "/no/such/python" in text]
    assert len(about) == 1
    assert about[0].startswith(
        "/no/such/python: must be a program that can be started, got no such file or directory. "
        "Flags were not checked against it. "
    )


def test_launches_that_were_seen_replace_the_guess(study: Path) -> None:
    place = place_of("demo", None)
    with open_store(place.url, create=True) as store:
        store.save_study_meta(StudyMeta("demo", "demo", 1, "2026-11-02T09:00:00Z", {}))
        for number, seconds in ((0, 100.0), (1, 140.0)):
            state = "baseline" if number == 0 else "complete"
            record = TrialRecord(number=number, state=state, seconds=Seconds(total=seconds))
            store.save_trial("demo", record)
    report = check_study(study)
    assert report.seconds == pytest.approx(13 * 120)
    assert any(line.endswith("to confirm: about 26:00") for line in check_lines(report))


def test_a_budget_of_time_bounds_the_guess(study: Path) -> None:
    study.write_text(FAKE.replace("{launches: 4}", "{launches: 4, wall: 30s}"))
    assert check_study(study).seconds == 30.0


def test_a_small_space_needs_fewer_launches_than_the_budget(study: Path) -> None:
    loaded = load_study(study)
    assert planned_launches(loaded, 1) == (2, 6, 12)
    assert planned_launches(loaded, 0) == (1, 3, 6)


def test_loads_are_measured_one_after_the_other() -> None:
    workload = WorkloadConfig(
        prompts=PromptsConfig(builtin="mixed"),
        blocks=2,
        block_size=6,
        output_tokens=OutputTokensConfig(exactly=120),
        load=[LoadConfig(concurrency=1), LoadConfig(concurrency=4), LoadConfig(rate=2.0)],
    )
    assert measuring_seconds(workload) == pytest.approx(12 * 2 + 12 * 2 / 4 + 12 / 2)


def test_launches_that_are_not_timed_are_announced(study: Path) -> None:
    """Two environments (LL, Simple) and four drafting servers; finalists are two."""
    proto = "    proto: {env: NCCL_PROTO, choices: [unset, LL, Simple]}\n  start:"
    text = FAKE.replace("  start:", proto).replace("steps: 1, topk", "steps: 1, proto: LL, topk")
    looks = "{kind: fake, nccl_probe: every, measure_cycle: finalists}"
    study.write_text(text.replace("{kind: fake}", looks))
    report = check_study(study)
    assert report.untimed_launches_most == 2 + 2
    assert report.to_json()["untimed_launches_most"] == 4
    told = "and at most 4 that are not timed (engine.nccl_probe, engine.measure_cycle)"
    assert any(line.strip() == told for line in check_lines(report))
    study.write_text(text)
    assert check_study(study).untimed_launches_most == 0
