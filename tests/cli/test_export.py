"""`tuner export` on a stored study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tuner.cli.app import build_app
from tuner.cli.init import Wish, write_starter
from tuner.config.loader import load_study
from tuner.engines.catalog import get_engine
from tuner.space import build_space
from tuner.store.database import StudyMeta, open_store
from tuner.store.place import note_place, place_of
from tuner.store.record import ArgsRecord, FinalistRecord, RecommendationRecord, TrialRecord


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A vLLM study file with a confirmed trial 1 and an unconfirmed trial 2."""
    monkeypatch.chdir(tmp_path)
    wish = Wish(tmp_path, "vllm", "/models/big", "/models/draft", tp=8, name="big")
    path = write_starter(wish)[0]
    loaded = load_study(path)
    engine, space = get_engine(loaded.config.engine), build_space(loaded)
    place = place_of("big", None)
    document = {
        "fields": {
            "objective": "maximize output_tokens_per_s",
            "objective.at": "c1",
            "workload.prompts": "p" * 16,
        },
        "fingerprint": {"engine": "vllm 0.33.0", "gpus": "8 x H200", "model": "m" * 16},
        "config_digest": loaded.digest,
        "study_file": str(path),
    }
    with open_store(place.url, create=True) as store:
        store.save_study_meta(StudyMeta("big", "big", 1, "2026-11-02T09:00:00Z", document))
        for number, depth in ((1, 3), (2, 5)):
            args = engine.canonicalize({"depth": depth}, space)
            record = TrialRecord(
                number=number,
                state="complete",
                params={"depth": depth},
                requested_args=ArgsRecord(**args.to_json()),
                digest=args.digest,
                value=100.0,
                vs_baseline={1: 1.3, 2: 1.1}[number],
            )
            store.save_trial("big", record)
            if number == 1:
                store.save_recommendation("big", _recommendation(record))
    note_place(place)
    return path


def _recommendation(record: TrialRecord) -> RecommendationRecord:
    finalist = FinalistRecord(
        trial=1, digest=record.digest, ratio=1.3, low=1.2, high=1.4, launches=4
    )
    return RecommendationRecord(
        verdict="use",
        trial=1,
        server_args=record.requested_args,
        digest=record.digest,
        ratio=1.3,
        low=1.2,
        high=1.4,
        finalists=[finalist],
    )


def tuner(*arguments: str) -> Any:
    return CliRunner().invoke(build_app(), ["export", *arguments], prog_name="tuner")


def test_the_recommended_server_goes_beside_its_results(study: Path) -> None:
    found = tuner(str(study), "--json")
    assert found.exit_code == 0, found.stderr
    document = json.loads(found.stdout)
    folder = study.parent / "results" / "big" / "deploy"
    assert {Path(name).parent for name in document["files"]} == {folder}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["engine"] == {"kind": "vllm", "version": "0.33.0"}
    assert manifest["digests"]["prompts"] == "p" * 16
    assert manifest["study"]["objective"] == "maximize output_tokens_per_s at c1"


def test_by_name_and_with_further_files(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = tuner("big", "--out", str(out), "--for", "compose,systemd", "--for", "kubernetes")
    assert found.exit_code == 0, found.stderr
    assert {path.name for path in out.iterdir()} == {
        "server.yaml", "server.env", "launch.sh", "manifest.json", "REPORT.md", "compose.yaml",
        "kubernetes.yaml", "tuner.service",
    }  # fmt: skip
    assert found.stdout.splitlines()[-1] == f"Start it with {out / 'launch.sh'}"


def test_an_unconfirmed_trial_needs_the_flag(study: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    refused = tuner("big", "--trial", "2", "--out", out)
    assert refused.exit_code == 2
    assert "must be confirmed on held-out prompts" in refused.stderr
    assert not Path(out).exists()
    found = tuner("big", "--trial", "2", "--unconfirmed", "--out", out, "--json")
    assert json.loads(found.stdout)["flags"] == ["unconfirmed"]


def test_unknown_targets_and_allowances_are_named(study: Path) -> None:
    assert (
        "--for: must be among vllm, schedule, compose, kubernetes, systemd"
        in tuner("big", "--for", "x").stderr
    )
    assert "--allow: must be among" in tuner("big", "--allow", "anything").stderr


def test_a_changed_study_file_is_noted(study: Path) -> None:
    study.write_text(study.read_text().replace("launches: 20", "launches: 21"))
    found = tuner("big", "--json")
    assert found.exit_code == 0
    assert "has changed since; what was measured is exported" in found.stderr
    assert json.loads(found.stdout)["files"]


def test_a_study_whose_file_is_gone_must_be_given_as_a_file(study: Path) -> None:
    study.unlink()
    found = tuner("big")
    assert found.exit_code == 2
    assert "must be given as its study file" in found.stderr


RUNNING = (
    "NCCL_ALGO=Ring vllm serve /models/big --tensor-parallel-size 8 --max-num-seqs 32 "
    "--speculative-config.method eagle3 --speculative-config.model /models/draft "
    "--speculative-config.num_speculative_tokens 5"
)


def test_the_difference_to_a_running_server(study: Path, golden: Any) -> None:
    found = tuner("big", "--diff", RUNNING)
    assert found.exit_code == 0, found.stderr
    golden("diff", found.stdout)
    assert not (study.parent / "results" / "big" / "deploy").exists()
    document = json.loads(tuner("big", "--diff", RUNNING, "--json").stdout)
    changed = {change["name"]: (change["old"], change["new"]) for change in document["changes"]}
    assert changed == {
        "speculative-config.num_speculative_tokens": (5, 3),
        "max-num-seqs": (32, 16),
        "NCCL_ALGO": ("Ring", None),
    }
    assert document["old_trial"] is None


def test_a_running_server_that_was_measured_gives_a_gain(study: Path) -> None:
    measured = RUNNING.replace("NCCL_ALGO=Ring ", "").replace("seqs 32", "seqs 16")
    document = json.loads(tuner("big", "--diff", measured, "--json").stdout)
    assert document["old_trial"] == 2
    assert document["gain"] == pytest.approx(1.3 / 1.1)
    assert "measured 1.18x of the running one (trial 2)" in tuner("big", "--diff", measured).stdout


def test_the_old_server_may_be_given_in_many_forms(study: Path, tmp_path: Path) -> None:
    assert tuner("big", "--out", str(tmp_path / "bundle")).exit_code == 0
    script = tmp_path / "serve.sh"
    broken = RUNNING.replace(" --max", " \\\n  --max")
    script.write_text(f"#!/bin/sh\nset -e\nexec {broken}\n")
    spec = '{"method": "eagle3", "num_speculative_tokens": 5}'
    forms = {
        str(tmp_path / "bundle"): set(),
        str(tmp_path / "bundle" / "server.yaml"): set(),
        str(script): {"max-num-seqs", "NCCL_ALGO", "speculative-config.num_speculative_tokens"},
        spec: {"speculative-config.num_speculative_tokens"},
    }
    for form, expected in forms.items():
        found = tuner("big", "--diff", form, "--json")
        assert found.exit_code == 0, found.stderr
        assert {change["name"] for change in json.loads(found.stdout)["changes"]} == expected
    same = tuner("big", "--diff", str(tmp_path / "bundle"))
    assert same.stdout == "Nothing changes: the running server is the exported one.\n"


def test_a_server_of_another_engine_is_refused(study: Path) -> None:
    found = tuner("big", "--diff", "llama-server -m q.gguf")
    assert found.exit_code == 2
    assert "must be a server of the study's engine, got llamacpp" in found.stderr


def test_a_server_is_spread_over_nodes_with_a_note(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "spread"
    done = tuner("big", "--for", "kubernetes,vllm", "--nodes", "2", "--out", str(out))
    assert done.exit_code == 0, done.stderr
    assert "over 2 nodes it will be another speed" in done.stderr
    assert "LeaderWorkerSet" in (out / "kubernetes.yaml").read_text()
    refused = tuner("big", "--nodes", "2", "--out", str(out))
    assert refused.exit_code == 2
    assert "--nodes: must come with --for kubernetes" in refused.stderr
