"""Owns `tuner export`: a stored study's server becomes a bundle in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tuner.cli.output import narrate
from tuner.cli.stored import StoredStudy, find_study, read_study, study_file_of
from tuner.config.loader import LoadedStudy, load_study
from tuner.engines.catalog import get_engine
from tuner.errors import UsageError
from tuner.export.bundle import TARGETS, build_bundle, write_bundle
from tuner.export.subject import ALLOWANCES, UNCONFIRMED, Provenance, Subject, choose


@dataclass(frozen=True, slots=True)
class ExportWish:
    """What the user asked for on the command line."""

    study: str
    out: Path | None = None
    targets: tuple[str, ...] = ()
    trial: int | None = None
    unconfirmed: bool = False
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    subject: Subject
    folder: Path
    files: tuple[Path, ...]


def export_study(wish: ExportWish) -> Exported:
    """Write the bundle that was asked for.

    Raises:
        ExportRefused: the result may not be exported as it is.
        UsageError: an unknown target or allowance, a folder with other files.
    """
    targets = checked("--for", split(wish.targets), TARGETS)
    allow = set(checked("--allow", split(wish.allow), ALLOWANCES))
    allow |= {UNCONFIRMED} if wish.unconfirmed else set()
    place, loaded = find_study(wish.study)
    stored = read_study(wish.study)
    engine = get_engine((loaded or reload(stored)).config.engine)
    subject = choose(
        stored.trials,
        stored.recommendation,
        provenance_of(stored, engine.kind),
        number=wish.trial,
        allow=frozenset(allow),
    )
    folder = wish.out or place.results.deploy_folder
    files = build_bundle(engine, subject, folder=folder, targets=targets)
    return Exported(subject, folder, tuple(write_bundle(files, folder)))


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
