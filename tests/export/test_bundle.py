"""The bundle: complete, parsed back, hashed, written whole or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.errors import StoreError, UsageError
from tuner.export.bundle import (
    TARGETS,
    build_bundle,
    check_files,
    read_bundle,
    verify_bundle,
    write_bundle,
)
from tuner.export.manifest import sha256
from tuner.export.subject import Subject


def build(engine: Any, subject: Subject, folder: Path, targets: tuple[str, ...] = ()) -> Any:
    return build_bundle(engine, subject, folder=folder, targets=targets)


def test_a_bundle_holds_what_was_measured(engine: Any, subject: Subject, tmp_path: Path) -> None:
    files = build(engine, subject, tmp_path)
    assert set(files) == {
        "server.yaml", "server.env", "launch.sh", "REPORT.md", "manifest.json",
    }  # fmt: skip
    manifest = json.loads(files["manifest.json"])
    assert manifest["study"] == {
        "name": "big",
        "objective": "maximize output_tokens_per_s at c1",
        "digest": "5" * 16,
    }
    assert manifest["trial"] == 5
    assert manifest["verdict"] == "use"
    assert manifest["server"]["args"] == subject.args.to_json()
    assert manifest["server"]["digest"] == subject.args.digest
    confirmed = manifest["confirmed"]
    assert (confirmed["ratio"], confirmed["low"], confirmed["high"]) == (1.38, 1.36, 1.40)
    assert confirmed["launches"] == 4
    assert manifest["valid_for"] == {"load": "c1", "prompts": "6" * 16}
    assert manifest["files"]["launch.sh"] == sha256(files["launch.sh"])
    assert manifest["flags"] == []


def test_equal_input_gives_equal_files(engine: Any, subject: Subject, tmp_path: Path) -> None:
    assert build(engine, subject, tmp_path, TARGETS) == build(engine, subject, tmp_path, TARGETS)


def test_written_and_read_back(engine: Any, subject: Subject, tmp_path: Path) -> None:
    folder = tmp_path / "results" / "deploy"
    files = build(engine, subject, folder, TARGETS)
    paths = write_bundle(files, folder)
    assert {path.name for path in paths} == set(files)
    assert read_bundle(folder) == files
    assert verify_bundle(folder, engine) == subject.args
    assert (folder / "launch.sh").stat().st_mode & 0o777 == 0o755
    assert [path.name for path in folder.parent.iterdir()] == ["deploy"]


def test_an_earlier_bundle_is_replaced_whole(
    engine: Any, subject: Subject, tmp_path: Path
) -> None:
    folder = tmp_path / "deploy"
    write_bundle(build(engine, subject, folder, TARGETS), folder)
    write_bundle(build(engine, subject, folder), folder)
    assert not (folder / "compose.yaml").exists()
    assert verify_bundle(folder, engine) == subject.args


def test_strange_folders_are_left_alone(engine: Any, subject: Subject, tmp_path: Path) -> None:
    files = build(engine, subject, tmp_path)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="must be empty or an earlier bundle"):
        write_bundle(files, tmp_path)
    with pytest.raises(UsageError, match="must be a folder, got a file"):
        write_bundle(files, tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("name", ["server.yaml", "server.env", "launch.sh", "REPORT.md"])
def test_a_changed_file_is_noticed(
    engine: Any, subject: Subject, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "deploy"
    write_bundle(build(engine, subject, folder), folder)
    path = folder / name
    path.write_text(path.read_text() + "\n# edited\n")
    with pytest.raises(StoreError, match=f"{name}: must be the exported file"):
        verify_bundle(folder, engine)
    path.unlink()
    with pytest.raises(StoreError, match="must be a bundle"):
        verify_bundle(folder, engine)


def test_an_engine_that_renders_another_server_is_caught(
    engine: Any, subject: Subject, tmp_path: Path
) -> None:
    rendered = engine.render_config(subject.args)

    class Forgetful(type(engine)):  # type: ignore[misc]
        def render_config(self, args: Any) -> dict[str, str]:
            return {**rendered, "server.yaml": "model-path: /models/big\n"}

    with pytest.raises(StoreError, match=r"server\.yaml and server\.env: must start"):
        build(Forgetful(), subject, tmp_path)


def test_a_launcher_of_another_program_is_caught(
    engine: Any, subject: Subject, tmp_path: Path
) -> None:
    files = build(engine, subject, tmp_path)
    script = files["launch.sh"].replace("/opt/engine/bin/python", "/usr/bin/python3")
    manifest = json.loads(files["manifest.json"])
    manifest["files"]["launch.sh"] = sha256(script)
    changed = {**files, "launch.sh": script, "manifest.json": json.dumps(manifest)}
    with pytest.raises(StoreError, match=r"launch\.sh: must run"):
        check_files(changed, engine)


def test_what_is_no_bundle_is_said_to_be_none(engine: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"must be a bundle, got nothing there\."):
        verify_bundle(tmp_path / "nowhere", engine)
    with pytest.raises(UsageError, match=r"must be a bundle, got a folder without manifest\.json"):
        verify_bundle(tmp_path, engine)
    (tmp_path / "manifest.json").write_text('{"format": 9}')
    with pytest.raises(StoreError, match="format must be 1, got 9"):
        verify_bundle(tmp_path, engine)


@pytest.mark.parametrize("value", [None, [], 5, "x", [1]])
@pytest.mark.parametrize("path", ["server", "server.args", "server.args.env", "files", "study"])
def test_a_manifest_of_the_wrong_form_is_refused_by_name(
    engine: Any, subject: Subject, tmp_path: Path, path: str, value: object
) -> None:
    folder = tmp_path / "deploy"
    write_bundle(build(engine, subject, folder), folder)
    data = json.loads((folder / "manifest.json").read_text())
    *parents, last = path.split(".")
    place = data
    for key in parents:
        place = place[key]
    place[last] = value
    (folder / "manifest.json").write_text(json.dumps(data))
    with pytest.raises(StoreError, match=f"{path}[a-z.]* must be a mapping, got "):
        verify_bundle(folder, engine)


def test_a_bundle_that_points_outside_is_refused(
    engine: Any, subject: Subject, tmp_path: Path
) -> None:
    folder = tmp_path / "deploy"
    write_bundle(build(engine, subject, folder), folder)
    (tmp_path / "secret").write_text("secret")
    manifest = folder / "manifest.json"
    data = json.loads(manifest.read_text())
    data["files"]["../secret"] = "0" * 64
    manifest.write_text(json.dumps(data))
    with pytest.raises(StoreError, match=r"'../secret' as a file of it"):
        verify_bundle(folder, engine)
    del data["files"]["../secret"]
    manifest.write_text(json.dumps(data))
    (folder / "server.env").unlink(missing_ok=True)
    (folder / "server.env").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match="only plain files of the folder are read"):
        verify_bundle(folder, engine)


def test_the_manifest_says_where_every_number_comes_from(engine: Any, subject: Subject) -> None:
    provenance = replace(
        subject.provenance,
        digests={**subject.provenance.digests, "model": "m" * 16, "draft_model": "d" * 16},
        fingerprint={"gpus": "8 x NVIDIA H200, 141 GiB", "gpu_driver": "580.10"},
    )
    files = build_bundle(engine, replace(subject, provenance=provenance), folder=Path("/srv"))
    found = json.loads(files["manifest.json"])
    assert set(found["digests"]) == {"study", "prompts", "model", "draft_model"}
    assert found["driver"] == "580.10"
    assert found["engine"] == {"kind": "sglang", "version": "0.5.23"}
    assert (found["trial"], found["study"]["digest"]) == (5, "5" * 16)
    assert [found["confirmed"][name] for name in ("low", "ratio", "high")] == [1.36, 1.38, 1.40]
    assert found["valid_for"] == {"load": "c1", "prompts": "6" * 16}
    assert found["nodes"] == 1
    assert found["refused_without_flags"] == {}
    assert set(found["files"]) == set(files) - {"manifest.json"}


def test_variables_that_were_left_out_are_named(engine: Any, subject: Subject) -> None:
    args = ServerArgs(subject.args.flags, {"NCCL_DEBUG": None})
    files = build_bundle(engine, replace(subject, args=args), folder=Path("/srv"))
    assert json.loads(files["manifest.json"])["left_out_env"] == {"NCCL_ALGO": "Ring"}
    assert "| `NCCL_ALGO` | left out: without effect in the search |" in files["REPORT.md"]
    whole = build_bundle(engine, subject, folder=Path("/srv"))
    assert json.loads(whole["manifest.json"])["left_out_env"] == {}
