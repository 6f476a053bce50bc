"""Owns `tuner export`: a stored study's server becomes a bundle in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.cli.diff import Diff, find_diff, running_args
from tuner.cli.evidence import evidence_of
from tuner.cli.output import narrate
from tuner.config.loader import LoadedStudy, load_study
from tuner.engines.base import Engine
from tuner.engines.catalog import get_engine
from tuner.errors import UsageError
from tuner.export.bundle import TARGETS, build_bundle, write_bundle
from tuner.export.subject import (
    ALLOWANCES,
    UNCONFIRMED,
    Provenance,
    Subject,
    choose,
    choose_schedule,
)
from tuner.insight.evidence import speed_noise
from tuner.insight.inert import find_inert, without_inert
from tuner.store.place import StudyPlace
from tuner.store.stored import StoredStudy, find_study, read_study, study_file_of

SCHEDULE = "schedule"
"""Asks for the table of depths by load instead of a single server."""


@dataclass(frozen=True, slots=True)
class ExportWish:
    """What the user asked for on the command line."""

    study: str
    out: Path | None = None
    targets: tuple[str, ...] = ()
    trial: int | None = None
    unconfirmed: bool = False
    allow: tuple[str, ...] = ()
    nodes: int = 1


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    subject: Subject
    folder: Path
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A stored study, its study file and its engine."""

    place: StudyPlace
    loaded: LoadedStudy
    stored: StoredStudy
    engine: Engine

    def choose(self, trial: int | None, allow: Iterable[str]) -> Subject:
        """The server to be exported, without inert variables; raises ExportRefused."""
        subject = choose(
            self.stored.trials,
            self.stored.recommendation,
            provenance_of(self.stored, self.engine.kind),
            number=trial,
            allow=frozenset(allow),
        )
        inert = find_inert(self.stored.trials, speed_noise(self.stored))
        args, notes = without_inert(subject.args, inert)
        narrate(*(f"note: {note}" for note in notes))
        return replace(subject, args=args)

    def choose_schedule(self, allow: Iterable[str]) -> Subject:
        """The table of depths by load; raises ExportRefused."""
        return choose_schedule(
            self.stored.trials,
            self.stored.recommendation,
            provenance_of(self.stored, self.engine.kind),
            allow=frozenset(allow),
        )


def open_source(study: str) -> Source:
    """The study that STUDY names; raises TunerError when it cannot be read."""
    place, loaded = find_study(study)
    stored = read_study(study)
    loaded = loaded or reload(stored)
    return Source(place, loaded, stored, get_engine(loaded.config.engine))


def export_study(wish: ExportWish) -> Exported:
    """Write the bundle that was asked for.

    Raises:
        ExportRefused: the result may not be exported as it is.
        UsageError: an unknown target or allowance, a folder with other files.
    """
    source = open_source(wish.study)
    own = (source.engine.kind, SCHEDULE)
    targets = checked("--for", split(wish.targets), (*own, *TARGETS))
    allow = set(checked("--allow", split(wish.allow), ALLOWANCES))
    allow |= {UNCONFIRMED} if wish.unconfirmed else set()
    _refuse_nodes(wish.nodes, targets)
    if SCHEDULE in targets:
        subject = source.choose_schedule(allow)
    else:
        subject = source.choose(wish.trial, allow)
    folder = wish.out or source.place.results.deploy_folder
    evidence = evidence_of(source.place, source.loaded, source.stored, subject)
    files = build_bundle(
        source.engine,
        subject,
        folder=folder,
        targets=targets,
        evidence=evidence,
        nodes=wish.nodes,
    )
    return Exported(subject, folder, tuple(write_bundle(files, folder)))


def _refuse_nodes(nodes: int, targets: Iterable[str]) -> None:
    if nodes == 1:
        return
    if "kubernetes" not in targets:
        raise UsageError(
            f"--nodes: must come with --for kubernetes, got {nodes} without it.",
            "Add --for kubernetes, or leave --nodes out.",
        )
    narrate(f"note: measured on one machine; over {nodes} nodes it will be another speed.")


def diff_study(study: str, trial: int | None, old: str) -> Diff:
    """What would change against a server that runs today; nothing is written or refused."""
    source = open_source(study)
    subject = source.choose(trial, ALLOWANCES)
    running = running_args(old, source.loaded.config.engine, subject.args)
    new = (subject.args, subject.trial)
    return find_diff(source.stored, running, new, source.loaded.parameters)


def reload(stored: StoredStudy) -> LoadedStudy:
    """The study file that a stored study was made from; a note when it has changed since."""
    loaded = load_study(study_file_of(stored))
    if loaded.digest != stored.document.get("config_digest"):
        narrate(f"note: {loaded.path} has changed since; what was measured is exported.")
    return loaded


def provenance_of(stored: StoredStudy, kind: str) -> Provenance:
    """Where a stored study's measurements come from."""
    document = stored.document
    fields = document.get("fields", {})
    fingerprint = dict(document.get("fingerprint", {}))
    version = str(fingerprint.get("engine", "")).removeprefix(kind).strip()
    digests = {
        "study": document.get("config_digest", ""),
        "prompts": fields.get("workload.prompts", ""),
        "model": fingerprint.get("model", ""),
        "draft_model": fingerprint.get("draft_model", ""),
    }
    return Provenance(
        study=stored.name,
        objective=stored.title.partition(": ")[2],
        engine={"kind": kind, "version": version},
        digests={name: str(digest) for name, digest in digests.items() if digest},
        fingerprint=fingerprint,
        load=stored.load,
    )


def split(values: Iterable[str]) -> list[str]:
    """Options that may be repeated or separated by commas, as one list."""
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


def checked(option: str, values: list[str], known: tuple[str, ...]) -> list[str]:
    """The values; raises UsageError for one that is not known."""
    for value in values:
        if value not in known:
            raise UsageError(
                f"{option}: must be among {', '.join(known)}, got {value!r}.",
                "Separate several with commas.",
            )
    return values
