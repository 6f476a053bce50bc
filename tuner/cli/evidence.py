"""Owns collecting a bundle's evidence from a stored study: prompts, launches, answers."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.cli.output import narrate
from tuner.config.loader import LoadedStudy
from tuner.errors import UsageError
from tuner.export.evidence import BASELINE, SERVER, Evidence
from tuner.export.subject import Subject
from tuner.measure.prompts import Workload, build_workload
from tuner.search.objective import build_objective
from tuner.search.remeasure import answers_by_prompt
from tuner.store.database import open_store
from tuner.store.place import StudyPlace
from tuner.store.record import ConfirmationLaunch
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
    searched = [each.env for each in loaded.parameters.values() if each.env]
    return Evidence(
        workload=workload,
        load=objective.load,
        metric=objective.metric,
        direction=objective.direction,
        section=config.engine.model_dump(mode="json", exclude={"args", "env"}),
        launches={
            SERVER if trial == subject.trial.number else BASELINE: [
                launch.per_block for launch in launches if launch.trial == trial
            ]
            for trial in sorted({launch.trial for launch in launches})
        },
        answers=_answers(place, stored.name, launches),
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
    """Launches of the newest confirmation of this server, and of the baseline beside it."""
    number = subject.trial.number
    mine = [each for each in launches if each.trial == number and not each.failure]
    if not mine:
        return []
    campaign = mine[-1].campaign
    return [
        each
        for each in launches
        if each.campaign == campaign and not each.failure and each.trial in (0, number)
    ]


def _answers(
    place: StudyPlace, study: str, launches: Sequence[ConfirmationLaunch]
) -> dict[str, list[str]]:
    """The baseline's answers in its first two launches."""
    baseline = [launch.order for launch in launches if launch.trial == 0][:2]
    with open_store(place.url, create=False) as store:
        blocks = [store.confirm_blocks(study, order) for order in baseline]
    return answers_by_prompt([[r for block in each for r in block.records] for each in blocks])
