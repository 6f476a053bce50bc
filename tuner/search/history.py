"""Owns what the study knows so far, seen from one new trial: twins, baseline, references.

Built from stored records alone, so that a resumed study knows exactly what it knew before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from tuner.args import ServerArgs
from tuner.errors import FailureKind
from tuner.measure.noise import LaunchNoise
from tuner.measure.records import Measurement
from tuner.measure.sentinels import Sentinels
from tuner.search.objective import Objective, pooled_reference
from tuner.store.baselines import launch_places, sentinels_of
from tuner.store.record import LoadPointRecord, TrialRecord

MEASURED = frozenset({"baseline", "complete", "pruned"})


@dataclass(slots=True)
class History:
    """Finished trials of one study, in order; `baseline` is the first baseline's measurement."""

    objective: Objective
    records: list[TrialRecord] = field(default_factory=list)
    baseline: Measurement | None = None

    def add(self, record: TrialRecord) -> None:
        """Take note of a finished trial."""
        self.records.append(record)

    def replace(self, record: TrialRecord) -> None:
        """Take note of what was added to a finished trial."""
        self.records = [record if r.number == record.number else r for r in self.records]

    def take(self, record: TrialRecord, measurement: Measurement | None) -> None:
        """`add`, and keep the first baseline's measurement for comparisons."""
        self.add(record)
        if record.state == "baseline" and self.baseline is None:
            self.baseline = measurement

    @property
    def baselines(self) -> list[TrialRecord]:
        """Every launch of the baseline that was measured, oldest first."""
        return [record for record in self.records if record.state == "baseline"]

    @property
    def launches(self) -> int:
        """How many launches the finished trials cost."""
        return sum(record.is_launch for record in self.records)

    @property
    def since_baseline(self) -> int:
        """Launches since the baseline was measured last."""
        states = [record.state for record in self.records if record.is_launch]
        return states[::-1].index("baseline") if "baseline" in states else len(states)

    def twin_of(self, args: ServerArgs) -> TrialRecord | None:
        """An earlier trial of the very same server whose outcome stands: it was measured, or it
        failed by its own fault (the same server is never launched twice)."""
        digest = args.digest
        for record in self.records:
            if record.digest == digest and outcome_stands(record):
                return record
        return None

    def effective_twin(
        self, args: ServerArgs, effective_digest: str, effective: Iterable[str]
    ) -> TrialRecord | None:
        """A measured trial whose running server reported the same effective values.

        Only where everything in which the two requests differ is among the reported values:
        an engine that does not report a flag cannot prove two servers equal, and none reports
        its environment.
        """
        reported = set(effective)
        for record in self.records:
            if record.state not in ("baseline", "complete") or not effective_digest:
                continue
            if record.effective_digest != effective_digest:
                continue
            if differing(args, record) <= reported:
                return record
        return None

    def baseline_blocks(self, position: int | None = None) -> tuple[float, ...]:
        """The objective per block, pooled over all launches of the baseline.

        Args:
            position: launches of the study before the one it is compared with (None: all so
                far); where the machine drifts, the baseline as it would have been just then.
        """
        pooled = pooled_reference([block_values(self.objective, r) for r in self.baselines])
        factor = math.exp(self.sentinels().shift(self.launches if position is None else position))
        return tuple(value * factor for value in pooled)

    def sentinels(self, newest: int | None = None) -> Sentinels:
        """The baseline's launches along the study; `newest`: only so many of the last."""
        load = self.objective.load.label
        return sentinels_of(self.records, self.objective.metric, load, newest=newest)

    def shift(self, record: TrialRecord | None = None) -> float:
        """Log units by which the machine stands above its usual level at a trial's launch, or
        now; 0 where it does not drift."""
        place = self.launches if record is None else launch_places(self.records)[record.number]
        return self.sentinels().shift(place)

    def drift_at(self, position: int) -> float | None:
        """How much faster (below 0: slower) than usual the machine was after so many launches,
        whatever the objective's direction; None where it does not drift."""
        found = self.sentinels()
        shift = found.shift(position)
        return (
            math.expm1(shift if self.objective.maximize else -shift) if found.is_drifting else None
        )

    def settle(self) -> list[TrialRecord]:
        """Compare every measured trial with the baseline as it was around its own launch.

        Done after each launch of the baseline, because only that one shows what the machine did
        since the one before. Returns the records that changed; without drift none does, but
        those that an earlier look, at fewer launches of the baseline, had corrected.
        """
        found, places = self.sentinels(), launch_places(self.records)
        changed: dict[int, TrialRecord] = {}
        for record in self.records:
            if record.state in ("complete", "pruned"):
                settled = self._settled(record, places[record.number], found)
                if settled != record:
                    changed[record.number] = settled
            elif record.twin_of in changed:
                twin = changed[record.twin_of]
                update = {"vs_baseline": twin.vs_baseline, "drift": twin.drift}
                changed[record.number] = record.model_copy(update=update)
        self.records = [changed.get(record.number, record) for record in self.records]
        return list(changed.values())

    def _settled(self, record: TrialRecord, place: int, found: Sentinels) -> TrialRecord:
        if not found.is_drifting and record.drift is None:
            return record
        ratio = self.objective.ratio(
            block_values(self.objective, record), self.baseline_blocks(place)
        )
        update = {"vs_baseline": ratio, "drift": self.drift_at(place)}
        return record if ratio is None else record.model_copy(update=update)

    def baseline_metrics(self) -> dict[str, float]:
        """Every metric at the objective's load: the median over launches of the baseline."""
        points = [at_objective(self.objective, record) for record in self.baselines]
        names = sorted({name for point in points if point for name in point.metrics})
        return {
            name: float(np.median([p.metrics[name] for p in points if p and name in p.metrics]))
            for name in names
        }

    def launch_noise(self) -> LaunchNoise:
        """How much launches of one server differ here, from the baseline's repeats; what a drift
        explains is no noise."""
        return self.sentinels().noise

    def ranked(self) -> list[TrialRecord]:
        """Complete, feasible trials, best ratio to the baseline first."""
        complete = [
            record
            for record in self.records
            if record.state == "complete"
            and record.vs_baseline is not None
            and is_feasible(record)
        ]
        return sorted(complete, key=lambda record: -(record.vs_baseline or 0.0))

    def best(self) -> TrialRecord | None:
        """The best trial so far; None when nothing beat or matched anything yet."""
        ranked = self.ranked()
        return ranked[0] if ranked else None

    def last_failures(self) -> list[TrialRecord]:
        """The launches at the end of the history that all failed, newest first."""
        found: list[TrialRecord] = []
        for record in reversed(self.records):
            if not record.is_launch:
                continue
            if record.state != "failed":
                break
            found.append(record)
        return found


def outcome_stands(record: TrialRecord) -> bool:
    """True when launching the same server again would only repeat the outcome."""
    if record.state in MEASURED or record.state == "infeasible":
        return True
    if record.state == "failed" and record.failure:
        return FailureKind.from_label(record.failure).is_config_fault
    return False


def is_feasible(record: TrialRecord) -> bool:
    """True when every outcome constraint is satisfied."""
    return all(violation <= 0 for violation in record.constraints.values())


def at_objective(objective: Objective, record: TrialRecord) -> LoadPointRecord | None:
    """The record's load point that the objective reads."""
    for point in record.load_points:
        if point.load == objective.load.label:
            return point
    return None


def block_values(objective: Objective, record: TrialRecord) -> tuple[float, ...]:
    """The objective per block of a stored trial."""
    point = at_objective(objective, record)
    values = point.per_block.get(objective.metric, []) if point else []
    return tuple(math.nan if value is None else value for value in values)


def differing(args: ServerArgs, record: TrialRecord) -> set[str]:
    """Flags, and variables as `env:NAME`, that two requests give different values."""
    other = record.requested_args
    flags = {
        name
        for name in {*args.flags, *other.flags}
        if args.flags.get(name) != other.flags.get(name)
    }
    variables = {*args.env, *other.env}
    unset = object()
    return flags | {
        f"env:{name}"
        for name in variables
        if args.env.get(name, unset) != other.env.get(name, unset)
    }
