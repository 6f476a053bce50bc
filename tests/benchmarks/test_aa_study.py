"""The A/A benchmark: valid studies, counted promises, a table that says what failed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks import aa_study
from benchmarks.aa_study import ARMS
from tuner.config.loader import load_study
from tuner.search.loop import RunResult
from tuner.store.record import FinalistRecord, RecommendationRecord

SAME, FASTER = ARMS


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_every_arm_is_a_valid_study_of_one_other_server(arm: aa_study.Arm, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(aa_study.study_of(arm, model, tmp_path, 3)))
    loaded = load_study(path)
    assert list(loaded.parameters) == ["arm"]
    assert loaded.config.search.seed == 3
    assert loaded.config.confirm.most_rounds == 4


def test_one_false_gain_in_twenty_is_kept_and_two_are_not() -> None:
    assert SAME.kept(19, 20)
    assert not SAME.kept(18, 20)
    assert not SAME.kept(0, 1)
    assert FASTER.kept(3, 3)
    assert not FASTER.kept(2, 3)


def result(verdict: str, low: float, high: float) -> RunResult:
    finalist = FinalistRecord(trial=1, digest="d", ratio=1.02, low=low, high=high, launches=4)
    document = {"verdict": verdict, "finalists": [finalist]}
    return RunResult("s", (), RecommendationRecord.model_validate(document), "", 2, 1.0)


def test_a_row_says_whether_the_verdict_is_right() -> None:
    kept = aa_study.row(SAME, 4, result("keep_baseline", 0.99, 1.05), 31.4)
    assert kept == ["same", "4", "1.02x", "[0.990, 1.050]", "keep_baseline", "yes", "10", "31"]
    assert aa_study.row(FASTER, 0, result("keep_baseline", 0.99, 1.05), 31.4)[5] == "NO"
    unconfirmed = RunResult("s", (), RecommendationRecord(verdict="keep_baseline"), "", 2, 1.0)
    assert aa_study.row(SAME, 0, unconfirmed, 9.6)[2:5] == ["-", "not confirmed", "keep_baseline"]


def test_without_the_model_nothing_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aa_study, "find_model", lambda: None)
    assert aa_study.main(["--runs", "1"]) == 2
    assert "fetch_model" in capsys.readouterr().err
