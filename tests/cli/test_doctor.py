"""`tuner doctor`: the machine, a study's engine and draft, its database, the exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tuner.cli.app import build_app
from tuner.cli.doctor import doctor_lines
from tuner.cli.examine import study_checks
from tuner.config.loader import load_study
from tuner.host.checkup import Check
from tuner.store.database import open_store
from tuner.store.place import place_of

STUDY = """\
name: demo
engine: {{kind: {kind}, model: {model}{more}}}
space: {{parameters: {{steps: {{flag: spec-steps, int: [1, 3]}}}}}}
workload: {{prompts: {{builtin: mixed}}}}
objective: {{maximize: output_tokens_per_s}}
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def write(kind: str = "fake", model: str = "fake", more: str = "") -> Path:
        path = tmp_path / "demo.yaml"
        path.write_text(STUDY.format(kind=kind, model=model, more=more))
        return path

    return write


def by_name(path: Path) -> dict[str, Check]:
    return {check.name: check for check in study_checks(load_study(path))}


def tuner(*arguments: str) -> Any:
    return CliRunner().invoke(build_app(), ["doctor", *arguments])


def test_a_machine_is_examined() -> None:
    found = tuner("--json")
    document = json.loads(found.stdout)
    names = [check["name"] for check in document["checks"]]
    assert found.exit_code == (0 if document["ok"] else 3)
    assert names[:5] == ["python", "memory", "shared memory", "disk", "cpu clocks"]
    assert names[-2:] == ["engines", "stray servers"]
    assert all(set(check) == {"name", "ok", "state", "detail", "hint"}
               for check in document["checks"])  # fmt: skip


def test_a_study_that_can_run(study: Any) -> None:
    found = by_name(study())
    assert {name: check.state for name, check in found.items()} == {
        "engine": "ok", "model": "ok", "stray servers": "ok", "database": "ok",
    }  # fmt: skip
    assert found["database"].detail.endswith("demo/study.db: not made yet")
    assert not Path("results").exists(), "looking must not create anything"


def test_an_engine_that_is_not_there(study: Any) -> None:
    found = by_name(study("sglang", "/models/none", ", executable: /none/bin/python"))
    assert found["engine"].state == "fail"
    assert "/none/bin/python: must be a program that can be started" in found["engine"].detail
    assert found["model"] == Check(
        "model", "fail", "nothing at /models/none",
        "Correct the path, or fetch the model first (`make quickstart` fetches its own).",
    )  # fmt: skip
    failed = tuner("demo.yaml")
    assert failed.exit_code == 3
    assert failed.stdout.splitlines()[-1].endswith("failed: a study would not run here.")


def test_an_interpreter_without_the_engine_says_so_in_its_own_words(study: Any) -> None:
    found = by_name(study("sglang", "some/name", f", executable: {sys.executable}"))
    assert found["engine"].detail == (
        "it did not answer: ModuleNotFoundError: No module named 'sglang'"
    )


def test_a_draft_that_does_not_fit_its_target(study: Any, tmp_path: Path) -> None:
    for name, hidden in (("target", 4096), ("draft", 2048)):
        (tmp_path / name).mkdir()
        architecture = "LlamaForCausalLMEagle3" if name == "draft" else "LlamaForCausalLM"
        config = {"architectures": [architecture], "hidden_size": hidden}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    path = study("fake", str(tmp_path / "target"), f", draft_model: {tmp_path / 'draft'}")
    drafts = [check for check in study_checks(load_study(path)) if check.name == "draft"]
    assert ("fail", "the draft takes hidden states of 2,048, the target gives 4,096.") in [
        (check.state, check.detail) for check in drafts
    ]


def test_a_draft_elsewhere_is_not_inspected(study: Any) -> None:
    found = by_name(study("fake", "fake", ", draft_model: /none/draft"))
    assert found["draft"].state == "warn"
    assert found["draft"].detail.startswith("not inspected: /none/draft: must be a folder")


def test_a_sound_database_and_a_damaged_one(study: Any) -> None:
    path = study()
    place = place_of("demo", None)
    open_store(place.url, create=True).close()
    assert by_name(path)["database"].detail.endswith("demo/study.db: sound")
    place.results.study_db.write_bytes(b"not a database" * 100)
    damaged = by_name(path)["database"]
    assert damaged.state == "fail"
    assert "study.db" in damaged.detail
    by_its_name = tuner("demo", "--json")
    assert by_its_name.exit_code == 3
    last = json.loads(by_its_name.stdout)["checks"][-1]
    assert (last["name"], last["ok"]) == ("database", False)


def test_hints_stand_below_what_needs_them() -> None:
    checks = [
        Check("python", "ok", "3.11.7", "never shown"),
        Check("load", "warn", "2.0 of 8 cores busy", "End it."),
    ]
    assert doctor_lines(checks) == [
        "ok    python         3.11.7",
        "warn  load           2.0 of 8 cores busy",
        "                     End it.",
        "",
        "2 checks, 1 to look at; a study can run.",
    ]
    assert doctor_lines(checks[:1])[-1] == "1 check, all ok."


def test_a_narrow_terminal_folds_within_the_column() -> None:
    checks = [
        Check("load", "warn", "another process was busy, cores used: python: 1.5", "End it.")
    ]
    assert doctor_lines(checks, 60)[:3] == [
        "warn  load           another process was busy, cores used:",
        "                     python: 1.5",
        "                     End it.",
    ]
