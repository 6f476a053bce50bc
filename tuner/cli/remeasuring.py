"""Owns a bundle opened for measuring: its engine, evidence, host, and the servers to launch.

Here because it needs both sides of layer 5: `export` reads the bundle, `search` measures.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import units
from tuner.args import ServerArgs
from tuner.cli.output import narrate
from tuner.config.engine import EngineConfig, parse_engine
from tuner.engines.base import Engine, EngineFacts
from tuner.engines.catalog import get_engine
from tuner.errors import Difference, StoreError
from tuner.events import ConfirmationProgressed, Event, Observer
from tuner.export import manifest as manifests
from tuner.export.bundle import LAUNCH, check_files, read_bundle, start_files, write_files
from tuner.export.evidence import Evidence, read_evidence
from tuner.host import fingerprint
from tuner.search.bench import Bench
from tuner.search.candidates import inspect_engine
from tuner.search.local_runner import LocalRunner
from tuner.search.objective import Objective
from tuner.search.remeasure import Contender, Remeasured, remeasure
from tuner.server.command import LaunchCommand
from tuner.server.interrupts import raise_on_signals


@dataclass(frozen=True, slots=True)
class OpenBundle:
    """A bundle whose files were checked, and what it takes to measure it."""

    folder: Path
    manifest: Mapping[str, Any]
    args: ServerArgs
    evidence: Evidence
    engine: Engine
    section: EngineConfig

    @property
    def name(self) -> str:
        """The study it comes from."""
        return str(self.manifest["study"]["name"])

    @property
    def objective(self) -> Objective:
        """What is measured, where."""
        evidence = self.evidence
        return Objective(evidence.metric, evidence.direction == "maximize", evidence.load)

    def contender(self, number: int = 1, name: str = "bundle") -> Contender:
        """What its launch script starts."""
        return Contender(number, name, self.args, script_start(self.folder))

    def baseline(self, work: Path) -> Contender:
        """The same server without speculation, started by a script of the same kind."""
        args = self.engine.without_speculation(self.args)
        folder = work / "baseline-bundle"
        folder.mkdir(parents=True)
        write_files(start_files(self.engine, args, "Starts the baseline."), folder)
        return Contender(0, "baseline", args, script_start(folder))

    def bench(self, observer: Observer) -> Bench:
        """Everything a launch of it needs."""
        return Bench(
            study=self.name,
            engine=self.engine,
            facts=EngineFacts(),
            workload=self.evidence.workload,
            objective=self.objective,
            launch_timeout_s=self.section.launch_timeout,
            observer=observer,
            runner=LocalRunner(),
        )


def open_bundle(folder: Path) -> OpenBundle:
    """A written bundle, its files compared with their hashes and with the measured server.

    Raises:
        StoreError: it is none, was changed, or holds nothing to measure it with.
    """
    files = read_bundle(folder)
    manifest = manifests.parse_manifest(files[manifests.NAME])
    evidence = read_evidence(manifest, files)
    try:
        section = parse_engine(evidence.section)
    except ValueError as error:
        raise StoreError(
            f"{folder}: must name its engine, got: {error}.", "Export it again."
        ) from error
    engine = get_engine(section)
    return OpenBundle(
        folder.absolute(), manifest, check_files(files, engine), evidence, engine, section
    )


def host_differences(bundle: OpenBundle) -> list[Difference]:
    """Every field in which this machine, engine or model is not the one it was measured with.

    Raises:
        EngineError: the engine's program cannot be run here.
    """
    section = bundle.section
    if program := os.environ.get("PROGRAM"):  # what launch.sh takes instead, too
        section = section.model_copy(update={"executable": program})
    facts = inspect_engine(get_engine(section), section)
    subject = fingerprint.Subject(
        engine=f"{bundle.engine.kind} {facts.version or 'of unknown version'}",
        model=section.model,
        draft_model=section.draft_model,
        study_env=tuple(bundle.evidence.study_env),
    )
    stored = fingerprint.Fingerprint(dict(bundle.manifest["fingerprint"]))
    return fingerprint.compare(stored, fingerprint.take(subject))


def script_start(folder: Path) -> Callable[[int], LaunchCommand]:
    """What runs a bundle's launch.sh on a port, as its systemd unit does."""

    def start(port: int) -> LaunchCommand:
        where = {"HOST": "127.0.0.1", "PORT": str(port)}
        return LaunchCommand(("/bin/sh", str(folder / LAUNCH)), where)

    return start


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """A folder for logs that stays when the block fails, and is gone otherwise."""
    folder = Path(tempfile.mkdtemp(prefix="tuner-bundle-"))
    try:
        yield folder
    except BaseException:
        narrate(f"The servers' logs are in {folder}.")
        raise
    shutil.rmtree(folder, ignore_errors=True)


def measure_shown(
    bundle: OpenBundle, contenders: Sequence[Contender], rounds: int, folder: Path
) -> list[Remeasured]:
    """Measure the contenders on the bundle's prompts, one narrated line per launch."""
    names = {each.number: each.name for each in contenders}

    def observer(event: Event) -> None:
        if isinstance(event, ConfirmationProgressed):
            value = "no value" if event.value is None else units.number(event.value)
            narrate(
                f"round {event.round + 1}/{event.rounds}  {names[event.trial]:<9} {value} "
                f"{bundle.evidence.metric}"
            )

    with raise_on_signals():
        return remeasure(bundle.bench(observer), contenders, rounds, folder)
