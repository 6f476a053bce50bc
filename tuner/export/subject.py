"""Owns what may be exported: one measured server, and why it is refused otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.args import ServerArgs
from tuner.errors import ExportRefused
from tuner.store.record import (
    FAITHFUL,
    FinalistRecord,
    RecommendationRecord,
    ScheduleRecord,
    TrialRecord,
)

UNCONFIRMED = "unconfirmed"
SYNTHETIC = "synthetic"
SIMULATED = "simulated"
UNFAITHFUL = "unfaithful"
ALLOWANCES = (UNCONFIRMED, SYNTHETIC, SIMULATED, UNFAITHFUL)

_MEASURED = ("baseline", "complete", "pruned", "reused")
_REASONS = {
    UNCONFIRMED: (
        "must be confirmed on held-out prompts, got only the search's own measurement",
        "Run `tuner confirm`, or export it as it is with --trial N --unconfirmed.",
    ),
    SYNTHETIC: (
        "must be measured with real acceptance, got synthetic acceptance",
        "Remove the engine's synthetic-acceptance flags, or add --allow synthetic.",
    ),
    SIMULATED: (
        "must be measured on a real server, got a replayed or scripted one",
        "Run the study on the real engine, or add --allow simulated.",
    ),
    UNFAITHFUL: (
        "must answer as the baseline does, got different answers",
        "Look at `tuner show STUDY N`; add --allow unfaithful if the difference is meant.",
    ),
}

_SCHEDULE_REASONS = {
    UNCONFIRMED: (
        "must beat the best single server by more than the noise, got no such gain",
        "Export the single server, or the table all the same with --unconfirmed.",
    ),
}


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the measurements come from; every value is plain JSON.

    Args:
        study: the study's name.
        objective: such as `maximize output_tokens_per_s at c1`.
        engine: kind and version.
        digests: study, prompts, model, draft model, by name.
        fingerprint: the host's, by field.
        load: label of the load point the result is valid for.
    """

    study: str
    objective: str = ""
    engine: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    load: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """One server to be exported, what was confirmed about it, and the flags that were needed.

    With a `schedule` the server is its table, and `trial` the single server that it was measured
    against.
    """

    args: ServerArgs
    trial: TrialRecord
    provenance: Provenance
    recommendation: RecommendationRecord | None = None
    finalist: FinalistRecord | None = None
    flags: tuple[str, ...] = ()
    schedule: ScheduleRecord | None = None

    @property
    def keeps_baseline(self) -> bool:
        """True when the study's answer is the server without speculation."""
        return self.trial.state == "baseline" and self.schedule is None

    @property
    def left_out(self) -> dict[str, str | None]:
        """Variables that the measured server had and the exported one lacks: without effect."""
        measured = {} if self.schedule else self.trial.requested_args.env
        return {name: value for name, value in measured.items() if name not in self.args.env}

    @property
    def title(self) -> str:
        """What it is, in a word or two."""
        if self.schedule is not None:
            return "the table of depths by load"
        return "the baseline" if self.keeps_baseline else f"trial {self.trial.number}"


def choose(
    trials: Sequence[TrialRecord],
    recommendation: RecommendationRecord | None,
    provenance: Provenance,
    *,
    number: int | None = None,
    allow: frozenset[str] = frozenset(),
) -> Subject:
    """The recommended server, or trial `number`; the flags that were really needed are kept.

    Raises:
        ExportRefused: there is no such measured server, or it needs an allowance not given.
    """
    wanted = _wanted(recommendation, provenance.study) if number is None else number
    trial = _measured(trials, wanted, provenance.study)
    finalist = _finalist(recommendation, trial)
    confirmed = (
        recommendation is not None
        and recommendation.constraints_met
        and wanted == _recommended(recommendation)
    )
    needed = needed_allowances(trial, finalist, recommendation, is_recommended=confirmed)
    _refuse(f"study {provenance.study}, trial {wanted}", needed, allow, _REASONS)
    return Subject(
        args=_args(trial, recommendation if confirmed else None),
        trial=trial,
        provenance=provenance,
        recommendation=recommendation if confirmed else None,
        finalist=finalist,
        flags=tuple(needed),
    )


def choose_schedule(
    trials: Sequence[TrialRecord],
    recommendation: RecommendationRecord | None,
    provenance: Provenance,
    *,
    allow: frozenset[str] = frozenset(),
) -> Subject:
    """The study's table of depths.

    Raises:
        ExportRefused: there is none, or it needs an allowance not given.
    """
    study = provenance.study
    schedule = recommendation.schedule if recommendation else None
    if schedule is None or not schedule.server_args.flags:
        why = " ".join(schedule.reasons) if schedule else "none was measured"
        raise ExportRefused(
            f"study {study}: must have a table of depths by load, got none: {why}",
            f"Run `tuner confirm {study} --schedule`, or export the single server.",
        )
    trial = _measured(trials, schedule.single, study)
    facts = {
        UNCONFIRMED: schedule.verdict != "use",
        SYNTHETIC: trial.is_synthetic,
        SIMULATED: trial.is_simulated or schedule.is_simulated,
        UNFAITHFUL: schedule.fidelity not in FAITHFUL,
    }
    needed = [name for name in ALLOWANCES if facts[name]]
    _refuse(f"study {study}, schedule", needed, allow, _REASONS | _SCHEDULE_REASONS)
    return Subject(
        args=ServerArgs(schedule.server_args.flags, schedule.server_args.env),
        trial=trial,
        provenance=replace(provenance, load=", ".join(step.load for step in schedule.steps)),
        recommendation=recommendation,
        flags=tuple(needed),
        schedule=schedule,
    )


def _refuse(
    what: str,
    needed: Sequence[str],
    allow: frozenset[str],
    reasons: Mapping[str, tuple[str, str]],
) -> None:
    for name in needed:
        if name not in allow:
            why, hint = reasons[name]
            raise ExportRefused(f"{what}: {why}.", hint)


def reason_text(name: str) -> str:
    """Why a server is refused without this allowance."""
    return _REASONS[name][0]


def needed_allowances(
    trial: TrialRecord,
    finalist: FinalistRecord | None,
    recommendation: RecommendationRecord | None,
    *,
    is_recommended: bool,
) -> list[str]:
    """The flags without which this server is refused, in the order of ALLOWANCES."""
    proven = finalist is not None and finalist.low > 1.0 and finalist.constraints_met
    simulated = recommendation is not None and recommendation.is_simulated
    facts = {
        UNCONFIRMED: not (is_recommended or proven),
        SYNTHETIC: trial.is_synthetic,
        SIMULATED: trial.is_simulated or simulated,
        UNFAITHFUL: finalist is not None and finalist.fidelity not in FAITHFUL,
    }
    return [name for name in ALLOWANCES if facts[name]]


def _recommended(recommendation: RecommendationRecord) -> int:
    if recommendation.verdict == "keep_baseline" or recommendation.trial is None:
        return 0
    return recommendation.trial


def _wanted(recommendation: RecommendationRecord | None, study: str) -> int:
    if recommendation is None:
        raise ExportRefused(
            f"study {study}: must have a confirmed recommendation, got none.",
            f"Run `tuner confirm {study}`, or name a trial with --trial N --unconfirmed.",
        )
    if not recommendation.constraints_met:
        raise ExportRefused(
            f"study {study}: must have a server that satisfies its constraints, got none.",
            "Relax objective.constraints, or name a trial with --trial N --unconfirmed.",
        )
    return _recommended(recommendation)


def _measured(trials: Sequence[TrialRecord], number: int, study: str) -> TrialRecord:
    for trial in trials:
        if trial.number == number:
            if trial.state in _MEASURED and not trial.failure:
                return trial
            raise ExportRefused(
                f"study {study}, trial {number}: must be a server that was measured, "
                f"got {trial.failure or trial.state}.",
                "Choose a trial that `tuner show` lists as complete.",
            )
    raise ExportRefused(
        f"study {study}: must have a trial {number}, got {len(trials)} trials.",
        "List them with `tuner show`.",
    )


def _finalist(
    recommendation: RecommendationRecord | None, trial: TrialRecord
) -> FinalistRecord | None:
    for finalist in recommendation.finalists if recommendation else ():
        if finalist.trial == trial.number or finalist.digest == trial.digest != "":
            return finalist
    return None


def _args(trial: TrialRecord, recommendation: RecommendationRecord | None) -> ServerArgs:
    record = trial.requested_args
    if recommendation is not None and recommendation.server_args.flags:
        record = recommendation.server_args
    return ServerArgs(record.flags, record.env)
