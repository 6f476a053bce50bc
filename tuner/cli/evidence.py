"""Owns collecting a bundle's evidence from a stored study: prompts, launches, answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner.cli.output import narrate
from tuner.config.loader import LoadedStudy
from tuner.errors import UsageError
from tuner.export.evidence import BASELINE, SERVER, Evidence
from tuner.export.subject import Subject
from tuner.measure.prompts import Workload, build_workload
from tuner.search.objective import build_objective
from tuner.search.remeasure import answers_by_prompt
from tuner.search.sweep import first_answers, sweep_of
from tuner.store.database import open_store
from tuner.store.place import StudyPlace
from tuner.store.record import TABLE, ConfirmationLaunch
from tuner.store.stored import StoredStudy


def evidence_of(
    place: StudyPlace, loaded: LoadedStudy, stored: StoredStudy, subject: Subject
) -> Evidence | None:
    """What `tuner verify` will need; None, with a note, where the prompts are not what they were.

    Without it the bundle is as good to start, and can only not be measured again.
    """
    workload = measured_workload(loaded, stored)
    if workload is None:
        return None
    config = loaded.config
    objective = build_objective(config.objective, workload.loads)
    launches = confirmed_launches(stored.confirmations, subject)
    mine = TABLE if subject.schedule else subject.trial.number
    loads = sweep_of(workload.loads) if subject.schedule else (objective.load,)
    searched = [each.env for each in loaded.parameters.values() if each.env]
    return Evidence(
        workload=replace(workload, loads=loads),
        load=objective.load,
        metric=objective.metric,
        direction=objective.direction,
        section=config.engine.model_dump(mode="json", exclude={"args", "env"}),
        launches={
            SERVER if trial == mine else BASELINE: [
                launch.per_block for launch in launches if launch.trial == trial
            ]
            for trial in sorted({launch.trial for launch in launches})
        },
        answers=_answers(place, stored, is_swept=subject.schedule is not None),
        is_greedy=config.fidelity.compare != "off" and workload.sampling.temperature == 0,
        is_strict=config.fidelity.tolerance == "strict",
        study_env=tuple(sorted({*config.engine.env, *searched})),
    )


def measured_workload(loaded: LoadedStudy, stored: StoredStudy) -> Workload | None:
    """The prompts the study was measured with; None when they cannot be had any more."""
    try:
        workload = build_workload(loaded.config.workload, loaded.config.search.seed)
    except UsageError as error:
        narrate(f"note: no prompts in the bundle, it cannot be verified: {error.message}")
        return None
    if workload.digest != stored.document.get("fields", {}).get("workload.prompts"):
        narrate("note: the prompts have changed since; the bundle cannot be verified.")
        return None
    if not workload.held_out_blocks:
        narrate("note: the study holds no prompts out; the bundle cannot be verified.")
        return None
    return workload


def confirmed_launches(
    launches: Sequence[ConfirmationLaunch], subject: Subject
) -> list[ConfirmationLaunch]:
    """Launches of the newest confirmation of this server, and of what it was held against."""
    is_swept = subject.schedule is not None
    number = TABLE if is_swept else subject.trial.number
    usable = [each for each in launches if not each.failure and bool(each.loads) is is_swept]
    mine = [each for each in usable if each.trial == number]
    if not mine:
        return []
    beside = (subject.trial.number if is_swept else 0, number)
    return [each for each in usable if each.campaign == mine[-1].campaign and each.trial in beside]


def _answers(place: StudyPlace, stored: StoredStudy, *, is_swept: bool) -> dict[str, list[str]]:
    """The baseline's answers in two launches of the newest confirmation that has it."""
    baseline = [
        each
        for each in stored.confirmations
        if each.trial == 0 and not each.failure and bool(each.loads) is is_swept
    ]
    newest = [each.order for each in baseline if each.campaign == baseline[-1].campaign][:2]
    with open_store(place.url, create=False) as store:
        blocks = [store.confirm_blocks(stored.name, order) for order in newest]
    return answers_by_prompt([first_answers(each) for each in blocks])
