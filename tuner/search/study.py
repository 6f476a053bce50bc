"""Owns opening a study: created, resumed when it was made with the same things, or refused."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import optuna
from optuna.study import Study

from tuner.errors import Difference, StoreError, StudyMismatch
from tuner.redaction import hide_in_text
from tuner.search import recovery
from tuner.search.identity import (
    FORMAT_VERSION,
    Identity,
    StudySetup,
    differences,
    identity_of,
)
from tuner.search.opened import Asked, OpenStudy
from tuner.store.database import Store, StudyMeta
from tuner.store.faults import persist
from tuner.store.results import ResultsFolder

__all__ = ["Asked", "OpenStudy", "StudySetup", "open_study"]

_HINT = "Restore what it was made with, or keep it and start afresh: tuner run --new"


def open_study(
    setup: StudySetup, store: Store, results: ResultsFolder, *, new: bool = False
) -> OpenStudy:
    """Create a study, or resume it when it was made with the same things.

    Hold the run lock while it is open. Nothing is launched here.

    Args:
        setup: what the study is made with now.
        store: the database, open for writing.
        results: the results folder (generation 1; the opened study knows its own).
        new: start another generation and leave the stored study alone.

    Raises:
        StudyMismatch: the stored study was made with something else.
        StoreError: the folder belongs to another database, or Optuna has a foreign study there.
    """
    with store.asking():  # several workers may open it at once
        return _open(setup, store, results, new)


def _open(setup: StudySetup, store: Store, results: ResultsFolder, new: bool) -> OpenStudy:
    identity = identity_of(setup)
    stored = store.generations(setup.name)
    taken = setup.fingerprint
    store.save_fingerprint(taken.digest, {**taken.details, **taken.fields})
    previous = stored[-1] if stored else None
    if previous is None or new:
        meta = _new_meta(setup, store, identity, previous, results)
    else:
        meta = previous
        _refuse_differences(meta, identity)
    folder = ResultsFolder(results.root, meta.generation)
    notes = _claim_folder(folder, meta)
    resumed = previous is not None and not new
    opened = OpenStudy(
        _optuna_study(setup, store, meta), store, folder, meta.name, setup, resumed,
        identity=meta.document,
    )  # fmt: skip
    repaired = recovery.repair(opened.study, store, folder, meta.name, setup.space)
    opened.notes = (*store.notes, *notes, *repaired)
    _queue_start(opened)
    return opened


def _new_meta(
    setup: StudySetup,
    store: Store,
    identity: Identity,
    previous: StudyMeta | None,
    results: ResultsFolder,
) -> StudyMeta:
    generation = previous.generation + 1 if previous else 1
    orphan = results.read_identity() if previous is None else None
    if orphan is not None:
        # The database is gone, its trials are still on disk: they are taken back if they match.
        _refuse_differences(StudyMeta(setup.name, setup.name, 1, "", orphan), identity)
    document = {
        **identity.to_json(),
        "uid": orphan["uid"] if orphan else uuid.uuid4().hex,
        "config": hide_in_text(setup.loaded.text),
        "config_digest": setup.loaded.digest,
        "study_file": str(setup.loaded.path),
        "direction": setup.direction,
        "metric": setup.metric,
        "load": setup.load,
        "fingerprint_digest": setup.fingerprint.digest,
    }
    name = _free_name(store, setup.name, generation)
    created = datetime.now(UTC).isoformat()
    meta = StudyMeta(name, setup.name, generation, created, document)
    store.save_study_meta(meta)
    return meta


def _free_name(store: Store, name: str, generation: int) -> str:
    taken = set(optuna.get_all_study_names(store.optuna_storage))
    if generation == 1:
        if name in taken:
            raise StoreError(
                f"{store.where}: must have no study {name} of another program, got one.",
                "Choose another study name or another storage.",
            )
        return name
    suffix = generation
    while f"{name}-{suffix}" in taken:
        suffix += 1
    return f"{name}-{suffix}"


def _refuse_differences(meta: StudyMeta, identity: Identity) -> None:
    stored_format = meta.document.get("format")
    if stored_format != FORMAT_VERSION:
        found = [Difference("format", str(stored_format), str(FORMAT_VERSION))]
        raise StudyMismatch(meta.name, found, "Use the tuner that made it, or tuner run --new")
    found = differences(Identity.from_json(meta.document), identity)
    if found:
        raise StudyMismatch(meta.name, found, _HINT)


def _claim_folder(folder: ResultsFolder, meta: StudyMeta) -> tuple[str, ...]:
    """Mark the raw files as this study's; refuse those of another one."""
    known = folder.read_identity()
    if known is not None and known.get("uid") != meta.document["uid"]:
        raise StoreError(
            f"{folder.base}: must hold the raw files of study {meta.name} in its database, "
            "got those of another one.",
            f"Move that folder away: mv {folder.base} {folder.base}.old",
        )
    if known is None:
        if folder.trial_numbers():
            raise StoreError(
                f"{folder.base}: must say which study its trials belong to, got no identity.json.",
                f"Move that folder away: mv {folder.base} {folder.base}.old",
            )
        folder.write_identity(meta.document)
    return ()


def _optuna_study(setup: StudySetup, store: Store, meta: StudyMeta) -> Study:
    names = persist(lambda: optuna.get_all_study_names(store.optuna_storage), store.where)
    if meta.name in names:
        study = persist(
            lambda: optuna.load_study(study_name=meta.name, storage=store.optuna_storage),
            store.where,
        )
        _refuse_direction(study, setup, meta.name)
        return study
    study = persist(
        lambda: optuna.create_study(
            study_name=meta.name,
            storage=store.optuna_storage,
            direction="maximize" if setup.direction == "maximize" else "minimize",
        ),
        store.where,
    )
    study.set_metric_names([setup.metric])
    study.set_user_attr("tuner_uid", meta.document["uid"])
    return study


def _refuse_direction(study: Study, setup: StudySetup, name: str) -> None:
    stored = study.direction.name.lower()
    if stored != setup.direction:
        raise StudyMismatch(name, [Difference("direction", stored, setup.direction)], _HINT)


def _queue_start(opened: OpenStudy) -> None:
    """The baseline is trial 0, the start points follow; queued once in a study's life."""
    study = opened.study
    if study.user_attrs.get("start_queued"):
        return
    if not any(record.state == "baseline" for record in opened.records()):
        opened.queue_baseline()
    for point in opened.setup.space.start:
        opened.queue(point, note="start point")
    persist(lambda: study.set_user_attr("start_queued", True), opened.name)
