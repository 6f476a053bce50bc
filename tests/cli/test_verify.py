"""`tuner verify`: what a bundle starts is launched, measured and compared, on the fake server."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tuner.export.manifest import sha256

Tuner = Callable[..., Any]
Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def exported(
    tuner: Tuner,
    tmp_path_factory: pytest.TempPathFactory,
    at_work_in: Callable[..., AbstractContextManager[Path]],
    study_yaml: Callable[..., str],
) -> Iterator[Path]:
    """A bundle of a study that was really run, once for all tests."""
    engine = {"behaviour": {"step_ms": 3, "acceptance": [0.9], "answer_tokens": 24}}
    with at_work_in(tmp_path_factory.mktemp("verify")) as folder:
        study = study_yaml(
            engine=engine,
            workload={"output_tokens": {"max": 24}},
            fidelity={"compare": "greedy_text"},
        )
        (folder / "demo.yaml").write_text(study)
        done = tuner("run", "demo.yaml")
        assert done.exit_code == 0, done.stderr
        done = tuner("export", "demo", "--out", "bundle", "--trial", "1",
                     "--allow", "simulated,unconfirmed")  # fmt: skip
        assert done.exit_code == 0, done.stderr
        yield folder / "bundle"


@pytest.fixture
def bundle(exported: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the bundle with its manifest, and the lines of its prompts, edited."""

    def copy(edit: Edit = lambda manifest: None, line: Edit = lambda line: None) -> Path:
        folder = tmp_path / "a bundle"
        shutil.copytree(exported, folder)
        prompts = folder / "prompts.jsonl"
        lines = [json.loads(text) for text in prompts.read_text().splitlines()]
        for each in lines:
            line(each)
        prompts.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines))
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"]["prompts.jsonl"] = sha256(prompts.read_text())
        edit(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return copy


def verified(tuner: Tuner, folder: Path, *more: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Exit code, the document, and its checks by name."""
    done = tuner("verify", str(folder), "--json", *more)
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    return done.exit_code, document, {each["name"]: each for each in document["checks"]}


def test_the_bundle_carries_what_it_was_measured_with(exported: Path) -> None:
    manifest = json.loads((exported / "manifest.json").read_text())
    evidence = manifest["evidence"]
    assert "simulated" in manifest["flags"]
    assert "simulated" in manifest["refused_without_flags"]
    assert (evidence["metric"], evidence["load"]["concurrency"]) == ("output_tokens_per_s", 1)
    assert {name: len(each) for name, each in evidence["launches"].items()} == {
        "server": 2, "baseline": 2,
    }  # fmt: skip
    lines = [json.loads(line) for line in (exported / "prompts.jsonl").read_text().splitlines()]
    assert [line["block"] for line in lines] == [0, 0, 1, 1]
    assert all(len(line["answers"]) == 2 for line in lines)
    assert sha256((exported / "prompts.jsonl").read_text()) == manifest["files"]["prompts.jsonl"]


def noisy(manifest: dict[str, Any]) -> None:
    """As if launches had varied by a third: whatever else runs here does not matter then."""
    first = manifest["evidence"]["launches"]["server"][0]
    spread = (0.7, 0.8, 1.0, 1.2, 1.4)
    manifest["evidence"]["launches"] = {"server": [[v * f for v in first] for f in spread]}


def test_an_unchanged_server_is_verified(tuner: Tuner, bundle: Callable[..., Path]) -> None:
    code, document, checks = verified(tuner, bundle(noisy))
    assert (code, document["ok"], document["against"]) == (0, True, "record")
    assert document["low"] < 1 < document["high"]
    assert document["launches"] == 1
    assert {name: check["ok"] for name, check in checks.items()} == {
        "server": True, "speed": True, "outputs": True,
    }  # fmt: skip


def test_a_slower_server_with_other_answers_and_values_is_not(
    tuner: Tuner,
    bundle: Callable[..., Path],
) -> None:
    def faster_then(manifest: dict[str, Any]) -> None:
        launches = manifest["evidence"]["launches"]
        for name in launches:
            launches[name] = [[3 * value for value in launches["server"][0]]] * 8
        manifest["evidence"]["is_strict"] = True  # four answers are too few for a calibrated no
        manifest["server"]["effective"]["spec-steps"] = 3

    def answered(line: dict[str, Any]) -> None:
        line["answers"] = ["something else"] * 2

    code, document, checks = verified(tuner, bundle(faster_then, answered))
    assert (code, document["ok"]) == (1, False)
    assert document["ratio"] == pytest.approx(1 / 3, rel=0.5)
    assert {check["ok"] for check in checks.values()} == {False}
    assert checks["server"]["detail"] == "spec-steps: was 3, is 2"
    assert "0 of 4 answers are identical" in checks["outputs"]["detail"]


def test_another_machine_is_judged_only_against_a_baseline_there(
    tuner: Tuner,
    bundle: Callable[..., Path],
) -> None:
    def elsewhere(manifest: dict[str, Any]) -> None:
        manifest["fingerprint"]["gpus"] = "8 x Another GPU, 96 GiB"

    folder = bundle(elsewhere)
    refused = tuner("verify", str(folder))
    assert refused.exit_code == 4
    assert "gpus: stored 8 x Another GPU, 96 GiB" in refused.stderr
    assert "Add --baseline" in refused.stderr
    code, document, checks = verified(tuner, folder, "--baseline")
    assert (code, document["against"], document["launches"]) == (0, "baseline", 2)
    assert document["ratio"] > 1.2
    assert [each["field"] for each in document["differences"]] == ["gpus"]
    assert checks["server"]["ok"] is True
    assert checks["outputs"]["ok"] is True


def test_a_changed_file_is_refused_before_anything_is_launched(
    tuner: Tuner,
    bundle: Callable[..., Path],
) -> None:
    folder = bundle()
    (folder / "launch.sh").write_text("#!/bin/sh\nexec other\n")
    refused = tuner("verify", str(folder))
    assert refused.exit_code == 3
    assert "launch.sh: must be the exported file" in refused.stderr


def test_a_server_that_does_not_start_is_the_engines_fault(
    tuner: Tuner, bundle: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *--port*) exit 1 ;; esac\nexec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PROGRAM", str(program))
    failed = tuner("verify", str(bundle()))
    assert failed.exit_code == 3
    assert "bundle: must start and answer, got launch_crash" in failed.stderr
    assert "logs are in" in failed.stderr


def test_an_engine_that_is_not_there_is_named(
    tuner: Tuner, bundle: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROGRAM", "/nowhere/python")
    failed = tuner("verify", str(bundle()))
    assert failed.exit_code == 3
    assert "/nowhere/python" in failed.stderr


def test_a_bundle_without_evidence_says_what_is_missing(
    tuner: Tuner, bundle: Callable[..., Path]
) -> None:
    folder = bundle(lambda manifest: manifest.pop("evidence"))
    refused = tuner("verify", str(folder))
    assert refused.exit_code == 3
    assert "must hold prompts.jsonl and how it was measured" in refused.stderr


def test_the_lines_say_every_finding(tuner: Tuner, bundle: Callable[..., Path]) -> None:
    done = tuner("verify", str(bundle(noisy)))
    first, *lines = done.stdout.splitlines()
    assert first == "The bundle is what was measured."
    assert [line.split()[:2] for line in lines[:3]] == [
        ["server", "ok"], ["speed", "ok"], ["outputs", "ok"],
    ]  # fmt: skip
