"""Owns the export bundle: building, checking, writing whole or not at all, reading back."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tuner import __version__
from tuner.args import ServerArgs
from tuner.engines.base import Engine
from tuner.engines.dotenv import parse_env
from tuner.errors import StoreError, UsageError
from tuner.export import compose, kubernetes, manifest, systemd
from tuner.export.containers import container_for, default_port
from tuner.export.evidence import PROMPTS, Evidence, evidence_document, render_prompts
from tuner.export.launch import FOLDER, parse_launch, render_launch
from tuner.export.report import render_report
from tuner.export.subject import Subject

LAUNCH = "launch.sh"
REPORT = "REPORT.md"
TARGETS = ("compose", "kubernetes", "systemd")
"""What may be asked for beyond the bundle itself."""


def build_bundle(
    engine: Engine,
    subject: Subject,
    *,
    folder: Path,
    targets: Iterable[str] = (),
    evidence: Evidence | None = None,
    nodes: int = 1,
) -> dict[str, str]:
    """Every file of the bundle by name, parsed back and compared with the measured server.

    Args:
        engine: the adapter of the server program.
        subject: what is exported.
        folder: where it will be written; a systemd unit names it.
        targets: any of TARGETS.
        evidence: what `tuner verify` measures and compares with.
        nodes: pods that the server spans in kubernetes.yaml.

    Raises:
        StoreError: a file does not give back what was measured.
    """
    comment = _comment(subject)
    files = start_files(engine, subject.args, f"Starts {comment}")
    if subject.schedule is not None:
        files |= subject.schedule.files
    if evidence is not None:
        files[PROMPTS] = render_prompts(evidence)
    files |= _target_files(engine, subject, files, folder, frozenset(targets), nodes)
    marks = ("lossy",) if engine.is_lossy(subject.args) or subject.trial.is_lossy else ()
    files[REPORT] = render_report(subject, marks, tuple(files), default_port(engine.kind))
    content = manifest.build_manifest(subject, marks, files)
    content["nodes"] = nodes
    if evidence is not None:
        content["evidence"] = evidence_document(evidence)
    files[manifest.NAME] = manifest.render_manifest(content)
    check_files(files, engine)
    return files


def start_files(engine: Engine, args: ServerArgs, comment: str) -> dict[str, str]:
    """What it takes to start a server: its configuration, environment and launch script."""
    files = dict(engine.render_config(args))
    files[LAUNCH] = render_launch(
        engine.deploy_command(args, FOLDER),
        args.env,
        port=default_port(engine.kind),
        comment=comment,
    )
    return files


def check_files(files: Mapping[str, str], engine: Engine) -> ServerArgs:
    """The server that these files start, after every file was parsed and compared.

    Raises:
        StoreError: a file is missing, was changed, or starts another server.
    """
    try:
        data = manifest.parse_manifest(files[manifest.NAME])
        stored = ServerArgs.from_json(data["server"]["args"])
        for name, digest in data["files"].items():
            if manifest.sha256(files[name]) != digest:
                raise ValueError(f"{name}: must be the exported file, got another content")
        _check_server(files, engine, stored)
    except KeyError as error:
        raise StoreError(f"bundle: must hold {error.args[0]}, got nothing.", _AGAIN) from error
    except ValueError as error:
        raise StoreError(f"bundle: {error}.", _AGAIN) from error
    return stored


def read_bundle(folder: Path) -> dict[str, str]:
    """The files of a written bundle by name.

    Raises:
        UsageError: the folder holds no bundle.
        StoreError: it holds one that was changed, or cannot be read.
    """
    if not (folder / manifest.NAME).exists():
        raise UsageError(
            f"{folder}: must be a bundle, got {_instead(folder)}.",
            "Name the folder that `tuner export` wrote.",
        )
    try:
        text = _read(folder / manifest.NAME)
        names = manifest.parse_manifest(text)["files"]
        _refuse_outsiders(folder, names)
        return {manifest.NAME: text, **{name: _read(folder / name) for name in names}}
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(f"{folder}: must be a bundle, got: {error}.", _AGAIN) from error


def _instead(folder: Path) -> str:
    if folder.is_dir():
        return f"a folder without {manifest.NAME}"
    return "a file" if folder.exists() else "nothing there"


def _refuse_outsiders(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        if Path(name).name != name or (folder / name).is_symlink():
            raise ValueError(f"{name!r} as a file of it: only plain files of the folder are read")


def verify_bundle(folder: Path, engine: Engine) -> ServerArgs:
    """The server that a written bundle starts; raises StoreError when it was changed."""
    return check_files(read_bundle(folder), engine)


def write_bundle(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the files so that the folder holds all of them or what it held before.

    Raises:
        UsageError: the folder holds something that is not a bundle.
        StoreError: the disk refused.
    """
    _refuse_strangers(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            write_files(files, fresh)
            fresh.chmod(0o755)
            _swap(fresh, folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise StoreError(
            f"{folder}: must be writable, got: {error.strerror}.", "Choose another --out."
        ) from error
    return [folder / name for name in files]


def write_files(files: Mapping[str, str], folder: Path) -> None:
    """Write the files into an existing folder; the launch script is executable."""
    for name, text in files.items():
        _write(folder / name, text, 0o755 if name == LAUNCH else 0o644)


_AGAIN = "Export it again, and change settings by exporting another trial."


def _comment(subject: Subject) -> str:
    flags = f"\nExported with: {', '.join(subject.flags)}." if subject.flags else ""
    study = subject.provenance.study
    return f"the server of study {study}, {subject.title}; written by tuner {__version__}.{flags}"


def _target_files(
    engine: Engine,
    subject: Subject,
    files: Mapping[str, str],
    folder: Path,
    targets: frozenset[str],
    nodes: int,
) -> dict[str, str]:
    comment, study = f"Runs {_comment(subject)}", subject.provenance.study
    found: dict[str, str] = {}
    health = engine.probe(subject.args).health_path
    argv = engine.deploy_command(subject.args, FOLDER).argv
    if "compose" in targets:
        container = container_for(engine.kind, subject, health, argv)
        found[compose.NAME] = compose.render_compose(container, comment)
    if "kubernetes" in targets:
        container = container_for(engine.kind, subject, health, argv, nodes)
        found[kubernetes.NAME] = kubernetes.render_kubernetes(
            container, files, study=study, comment=comment
        )
    if "systemd" in targets:
        found[systemd.NAME] = systemd.render_systemd(
            folder.absolute(), port=default_port(engine.kind), study=study, comment=comment
        )
    return found


def _check_server(files: Mapping[str, str], engine: Engine, stored: ServerArgs) -> None:
    parsed = engine.parse_config(files)
    if parsed != stored:
        raise ValueError(f"server.yaml and server.env: must start {stored}, got {parsed}")
    if "server.env" in files and parse_env(files["server.env"]) != dict(stored.env):
        raise ValueError("server.env: must hold the measured environment")
    expected = engine.deploy_command(stored, FOLDER).argv
    if parse_launch(files[LAUNCH]) != expected:
        raise ValueError(f"launch.sh: must run {list(expected)}")
    if kubernetes.NAME in files:
        kubernetes.check_kubernetes(files[kubernetes.NAME], files)


def _refuse_strangers(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder}: must be a folder, got a file.", "Choose another --out.")
    if any(folder.iterdir()) and not (folder / manifest.NAME).is_file():
        raise UsageError(
            f"{folder}: must be empty or an earlier bundle, got other files.",
            "Choose another --out.",
        )


def _swap(fresh: Path, folder: Path) -> None:
    old = fresh.with_name(f"{fresh.name}-old")
    if folder.exists():
        folder.rename(old)
    try:
        fresh.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, text: str, mode: int) -> None:
    with path.open("wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    path.chmod(mode)


def _read(path: Path) -> str:
    return path.read_bytes().decode()
