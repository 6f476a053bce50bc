"""Owns a study that is open: a trial's way in and out of Optuna, and everything it keeps.

Everything is kept in this order: raw files, our tables, Optuna. Whatever is lost between two of
them is brought back the next time the study is opened (see recovery).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.args import Params
from tuner.measure.records import Block
from tuner.search import recovery
from tuner.search.identity import StudySetup
from tuner.search.lattice import LatticeSampler, busy_digests, distributions, point_key, suggest
from tuner.search.sampling import Ground, Proposal, Suggester, complete_point, situation_of
from tuner.search.telling import running_estimate, tell_record
from tuner.space import SpaceSurvey
from tuner.store.database import Store
from tuner.store.faults import persist
from tuner.store.optuna_trials import optuna_trials
from tuner.store.owner import Owner, current_owner
from tuner.store.record import ConfirmationLaunch, RecommendationRecord, TrialRecord
from tuner.store.results import ResultsFolder


@dataclass(frozen=True, slots=True)
class Asked:
    """A trial that is to be run now.

    Args:
        number: the trial's number, in Optuna and everywhere else.
        params: its point, possibly infeasible or a duplicate when a user queued it.
        is_baseline: speculation off.
        retry_of: the interrupted trial it repeats.
        predicted: expected ratio to the baseline.
    """

    number: int
    params: Params
    is_baseline: bool = False
    retry_of: int | None = None
    predicted: float | None = None


@dataclass(slots=True)
class OpenStudy:
    """An open study: Optuna's study, the store, the raw files, who works on it.

    Args:
        study: Optuna's own object.
        store: the database, open for writing.
        results: the raw files of this generation.
        name: the stored name (`NAME`, or `NAME-2` after `--new`).
        resumed: False when it was just created.
        notes: what was repaired or noticed, for people.
        identity: what the raw files' identity.json holds.
    """

    study: Study
    store: Store
    results: ResultsFolder
    name: str
    setup: StudySetup
    resumed: bool
    notes: tuple[str, ...] = ()
    identity: Mapping[str, Any] = field(default_factory=dict)
    owner: Owner = field(default_factory=lambda: current_owner(os.getpid()))
    _kept: dict[int, TrialRecord] = field(default_factory=dict)
    _digests: tuple[SpaceSurvey, list[str]] | None = None

    def records(self) -> list[TrialRecord]:
        """Every finished trial, in order; read once, on a shared database what is new."""
        if not self._kept or self.store.is_shared:
            fresh = self.store.trials(self.name, besides=self._kept)
            self._kept |= {record.number: record for record in fresh}
        return [self._kept[number] for number in sorted(self._kept)]

    def running(self) -> list[FrozenTrial]:
        """Trials that are being measured now, by any worker."""
        return optuna_trials(self.study, TrialState.RUNNING)

    # ---- a trial's way in --------------------------------------------------------------------
    def queue_baseline(self) -> None:
        """Put a measurement of the baseline at the end of the queue, unless one waits there."""
        waiting = optuna_trials(self.study, TrialState.WAITING)
        if not any(trial.user_attrs.get("baseline") for trial in waiting):
            self._enqueue({}, {"baseline": True})

    def queue(self, params: Params, *, note: str = "queued") -> None:
        """Put a point at the end of the queue, unless the study already has it."""
        self._enqueue(params, {"queued": note}, skip_if_exists=True)

    def _enqueue(
        self, params: Params, attrs: Mapping[str, Any], *, skip_if_exists: bool = False
    ) -> None:
        persist(
            lambda: self.study.enqueue_trial(
                dict(params), user_attrs=dict(attrs), skip_if_exists=skip_if_exists
            ),
            self.name,
        )

    def ask(self, ground: Ground, suggester: Suggester) -> Asked | None:
        """The next trial: the first of the queue, or the suggester's choice; None: nothing left.

        Only one worker asks at a time; what runs elsewhere is not proposed.
        """
        with self.store.asking():
            if self.store.is_shared:
                self.give_back()
            self.study.sampler = LatticeSampler(ground)
            while self.is_queue_filled():
                asked = self._start_queued(ground)
                if asked is not None:
                    return asked
            proposal = self._propose(ground, suggester)
            return None if proposal is None else self._start_proposed(ground, proposal)

    def give_back(self) -> None:
        """Queue the trials of workers that died while this one was measuring."""
        ended = recovery.end_dead_trials(self.study, self.store, self.results, self.name)
        self.notes = (*self.notes, *(note for note in ended if "interrupted" in note))

    def is_queue_filled(self) -> bool:
        """True when a queued trial waits to be run."""
        waiting = (TrialState.WAITING,)
        return bool(optuna_trials(self.study, *waiting))

    def _propose(self, ground: Ground, suggester: Suggester) -> Proposal | None:
        digests = self._digests_of(ground.survey)
        points = (point_key(params) for params, _ in ground.survey.servers)
        busy = busy_digests(self.study, lambda: dict(zip(points, digests, strict=True)))
        n_existing = len(optuna_trials(self.study))
        situation = situation_of(ground, self.records(), busy, n_existing, digests)
        return None if situation is None else suggester.propose(situation)

    def _digests_of(self, survey: SpaceSurvey) -> list[str]:
        if self._digests is None or self._digests[0] is not survey:
            self._digests = (survey, [args.digest for _, args in survey.servers])
        return self._digests[1]

    def _start_proposed(self, ground: Ground, proposal: Proposal) -> Asked:
        params, args = ground.survey.servers[proposal.index]
        trial = self._begin()
        persist(lambda: trial.set_user_attr("digest", args.digest), self.name)
        self._take_params(ground, trial, params)
        return Asked(trial.number, params, predicted=proposal.predicted)

    def _start_queued(self, ground: Ground) -> Asked | None:
        trial = self._begin()
        frozen = optuna_trials(self.study)[trial.number]
        attrs = trial.user_attrs
        if attrs.get("baseline"):
            return Asked(trial.number, {}, True, attrs.get("retry_of"))
        queued = frozen.system_attrs.get("fixed_params", {})
        point = complete_point(ground, queued)
        if point is None:
            reason = f"the space has no point like {queued}"
            self.finish(recovery.unknown_point(trial.number, queued, reason))
            return None
        self._take_params(ground, trial, point)
        return Asked(trial.number, point, False, attrs.get("retry_of"))

    def _begin(self) -> Trial:
        trial = self._take_waiting_baseline() or persist(self.study.ask, self.name)
        persist(lambda: trial.set_user_attr("owner", self.owner.to_json()), self.name)
        return trial

    def _take_waiting_baseline(self) -> Trial | None:
        """A queued baseline comes first: nothing can be compared before it is measured."""
        waiting = optuna_trials(self.study, TrialState.WAITING)
        for frozen in waiting:
            if frozen.user_attrs.get("baseline"):
                storage, found = self.study._storage, frozen._trial_id
                take = partial(storage.set_trial_state_values, found, TrialState.RUNNING)
                return Trial(self.study, found) if persist(take, self.name) else None
        return None

    def _take_params(self, ground: Ground, trial: Trial, point: Params) -> None:
        sampler = self.study.sampler
        assert isinstance(sampler, LatticeSampler)
        sampler.offer(point)
        for name, known in distributions(ground.space).items():
            if name in point:
                persist(partial(suggest, trial, name, known), self.name)

    # ---- a trial's way out -------------------------------------------------------------------
    def finish(self, record: TrialRecord, blocks: Sequence[Block] = ()) -> str:
        """Keep a finished trial: raw files, our tables, Optuna; returns "" or a note.

        Raises:
            StoreError: one of the three kept failing; the raw files are there if they could be.
        """
        self.results.write_trial(record, blocks)
        if self.results.read_identity() is None:  # the folder was deleted under a running study
            self.results.write_identity(self.identity)
        self.store.require_file()
        self.store.save_trial(self.name, record, blocks)
        self.records()
        self._kept[record.number] = record
        return tell_record(self.study, record.number, record, self._curve(record))

    def amend(self, number: int, changes: Mapping[str, object]) -> TrialRecord:
        """A finished trial's record with these fields changed, kept; Optuna knows its value
        already. What another worker has added meanwhile stays, and so do the blocks."""
        newest = self.store.trial(self.name, number) or self._kept[number]
        record = newest.model_copy(update=dict(changes))
        if self.results.trial_folder(number, create=False).is_dir():
            self.results.write_trial(record)
        self.store.amend_trial(self.name, record)
        self._kept[number] = record
        return record

    def interrupt(self, asked: Asked, reason: str = "interrupted by the user") -> TrialRecord:
        """End a running trial as interrupted and queue its point once more."""
        record = recovery.interrupted_record(asked.number, asked.params, reason)
        self.finish(record)
        recovery.requeue(self.study, asked.number)
        return record

    def _curve(self, record: TrialRecord) -> list[float]:
        values = self._block_values(record)
        if record.state == "baseline":
            return running_estimate(values, values, record.value)
        baseline = next((r for r in self.records() if r.state == "baseline"), None)
        if baseline is None:
            return []
        return running_estimate(values, self._block_values(baseline), baseline.value)

    def _block_values(self, record: TrialRecord) -> list[float]:
        for point in record.load_points:
            if point.load == self.setup.load:
                return point.per_block.get(self.setup.metric, [])
        return []

    # ---- confirmation ------------------------------------------------------------------------
    def launches(self) -> list[ConfirmationLaunch]:
        """Every stored launch of the confirmation, oldest first."""
        return self.store.confirmations(self.name)

    def keep_launch(self, launch: ConfirmationLaunch, blocks: Sequence[Block] = ()) -> None:
        """Make a confirmation launch and its raw blocks durable."""
        self.results.write_confirmation(launch, blocks)
        self.store.save_confirmation(self.name, launch, blocks)

    def launch_blocks(self, order: int) -> list[Block]:
        """The raw blocks of a stored confirmation launch."""
        return self.results.read_confirm_blocks(order) or self.store.confirm_blocks(
            self.name, order
        )

    def launch_folder(self, order: int) -> Path:
        """Where a confirmation launch's raw files go."""
        return self.results.confirm_folder(order)

    def trial_blocks(self, number: int) -> list[Block]:
        """The raw blocks of a trial; from the database where this machine has no files."""
        return self.results.read_blocks(number) or self.store.blocks(self.name, number)

    def keep_recommendation(self, record: RecommendationRecord) -> None:
        """Store the end of a confirmation."""
        self.store.save_recommendation(self.name, record)
