"""Owns the confirmation: finalists and baseline launched again, interleaved, on held-out prompts.

The order is A B C, C B A, A B C …: a slow drift of the machine cancels between rounds. Every
launch is stored as it ends, so an interrupted confirmation goes on where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from tuner.args import ServerArgs, digest_of
from tuner.config.study import ConfirmConfig, FidelityConfig
from tuner.errors import TrialFailure
from tuner.events import ConfirmationProgressed
from tuner.measure.checks import check_measurement
from tuner.measure.metrics import summarize
from tuner.measure.noise import LaunchNoise, pooled_noise, rounds_needed
from tuner.measure.records import Block, LoadPoint, RequestRecord
from tuner.search.bench import Bench, LaunchPlan, ServerRun, never
from tuner.search.candidates import Candidates
from tuner.search.faithful import Compared, faithfulness
from tuner.search.history import History
from tuner.search.launching import run_launch
from tuner.search.opinion import NO_OPINION, Belief, Opinion, nothing_known
from tuner.search.recommend import UNKNOWN_NOISE, Finalist, Verdict, decide
from tuner.search.recording import args_record, counts_at, finite
from tuner.search.stopping import is_never_accepted
from tuner.search.sweep import block_series, geometric_mean
from tuner.search.weighing import Expected
from tuner.store.record import ConfirmationLaunch, RecommendationRecord, TrialRecord

HOPELESS = 1.5
"""A server this many launch margins below the baseline is not worth confirming."""


SHARPEST = 0.01
"""No confirmation tries to be sharper than 1 %."""


class LaunchKeeper(Protocol):
    """Keeps confirmation launches and gives them back."""

    def launches(self) -> list[ConfirmationLaunch]:
        """Every stored launch of the study, oldest first."""
        ...

    def keep_launch(self, launch: ConfirmationLaunch, blocks: Sequence[Block]) -> None:
        """Make a launch and its raw blocks durable."""
        ...

    def launch_blocks(self, order: int) -> list[Block]:
        """The raw blocks of a stored launch."""
        ...

    def launch_folder(self, order: int) -> Path:
        """Where a launch's raw files go."""
        ...


@dataclass(slots=True)
class Campaign:
    """One confirmation: the servers by trial (0 is the baseline), and its launches so far.

    `noise` is what the search learned of launches of one server, `slope` the drift per launch in
    log units that it found (0: none), `belief` what its model says of each server once it knows
    the launches of the confirmation too. `sweep`: load points that every
    launch goes through in this order; empty: the objective's alone.
    """

    bench: Bench
    keeper: LaunchKeeper
    rounds: int
    servers: Mapping[int, ServerArgs]
    noise: LaunchNoise = UNKNOWN_NOISE
    slope: float = 0.0
    launches: list[ConfirmationLaunch] = field(default_factory=list)
    sweep: tuple[LoadPoint, ...] = ()
    belief: Belief = nothing_known

    @property
    def name(self) -> str:
        """Identity of this set of servers on these prompts."""
        digests = sorted(args.digest for args in self.servers.values())
        loads = [[load.label for load in self.sweep]] if self.sweep else []
        where = [self.bench.workload.digest, self.bench.objective.text]
        return digest_of([digests, *where, *loads])

    def launch_of(self, round_: int, trial: int) -> ConfirmationLaunch | None:
        """The stored launch of a server in a round."""
        for launch in self.launches:
            if (launch.round, launch.trial) == (round_, trial):
                return launch
        return None


def select_finalists(
    history: History, count: int, expected: Mapping[str, Expected] | None = None
) -> list[TrialRecord]:
    """The best complete, feasible, real servers of the search, distinct by server.

    `expected` is by digest what a model, which judges servers by more than their own noisy
    launch, says of them; elsewhere the measured ratio counts.
    """
    chosen: list[TrialRecord] = []
    digests: set[str] = set()
    noise = history.launch_noise().margin()
    gains = {id(record): gain_of(record, expected or {}) for record in history.ranked()}
    for record in sorted(history.ranked(), key=lambda each: -gains[id(each)]):
        hopeless = gains[id(record)] + HOPELESS * noise < 0
        futile = hopeless or is_never_accepted(record)
        if record.digest in digests or record.is_synthetic or futile:
            continue
        chosen.append(record)
        digests.add(record.digest)
    return _with_a_lossless_one(chosen, count)


def _with_a_lossless_one(chosen: Sequence[TrialRecord], count: int) -> list[TrialRecord]:
    """The first so many, the best that keeps the model's distribution among them: who may not
    change what the model writes needs a server too."""
    first = list(chosen[:count])
    lossless = next((record for record in chosen if not record.is_lossy), None)
    if lossless is not None and count > 1 and all(record.is_lossy for record in first):
        first[-1] = lossless
    return first


def gain_of(record: TrialRecord, expected: Mapping[str, Expected]) -> float:
    """Log ratio to the baseline: what a model expects, else what was measured."""
    known = expected.get(record.digest)
    return known.gain if known else math.log(record.vs_baseline or 1.0)


def plan_campaign(
    bench: Bench,
    keeper: LaunchKeeper,
    config: ConfirmConfig,
    history: History,
    candidates: Candidates,
    finalists: Sequence[TrialRecord],
    opinion: Opinion = NO_OPINION,
) -> Campaign:
    """The confirmation of these finalists: the baseline first, rounds planned from the noise."""
    servers = {0: candidates.baseline}
    servers |= {each.number: candidates.args_of(each.params) for each in finalists}
    rounds = planned_rounds(config, history, finalists, opinion)
    found = history.sentinels()
    slope = found.drift.slope if found.is_drifting else 0.0
    return Campaign(bench, keeper, rounds, servers, found.noise, slope, belief=opinion.after)


def planned_rounds(
    config: ConfirmConfig,
    history: History,
    finalists: Sequence[TrialRecord],
    opinion: Opinion = NO_OPINION,
) -> int:
    """Rounds that should make the interval half as wide as the gain to be shown.

    `opinion` is the model's: the gain it expects of the best, because the best of many noisy
    launches shows too much, and how far launches lay from it: with a baseline launched twice or
    three times, most of what is known of the noise.

    Chosen from the launch noise before any round is run, between `rounds` and `max_rounds`
    (twice `rounds` when that is not set): stopping when a result looks good would make the
    interval promise too much. On a machine that drifts an even number: the drift of a round
    cancels with that of the next, which runs backwards.
    """
    noise = pooled_noise(history.launch_noise(), opinion.noise)
    if not noise.df or not finalists:
        return config.rounds
    gains = [gain_of(each, opinion.expected) for each in finalists]
    wanted = max(max(gains) / 2.0, SHARPEST)
    needed = rounds_needed(noise.upper_sd, wanted, finalists=len(finalists))
    rounds = max(config.rounds, needed)
    if history.sentinels().is_drifting:
        rounds += rounds % 2
    return min(rounds, config.most_rounds)


def confirm(
    campaign: Campaign, fidelity: FidelityConfig, reasons: Sequence[str] = ()
) -> RecommendationRecord:
    """Run what is missing of the confirmation and give the verdict.

    Raises:
        Interrupted: the user stopped it; finished launches are stored.
    """
    bench = campaign.bench
    stored = campaign.keeper.launches()
    campaign.launches = [launch for launch in stored if launch.campaign == campaign.name]
    finalists = [
        Finalist(trial, args.digest, bench.engine.complexity(args))
        for trial, args in campaign.servers.items()
        if trial != 0
    ]
    if not finalists:
        empty = Verdict(None, (), tuple(reasons) or ("No server was better in the search.",), None)
        return recommendation(campaign, empty, "not checked")
    rounds = max(campaign.rounds, 2)
    for round_ in range(rounds):
        run_round(campaign, round_, rounds)
    judged = {each.digest: check_fidelity(campaign, each, fidelity) for each in finalists}
    steady = without_drift(campaign.launches, campaign.slope)
    expected = campaign.belief(steady)
    result = decide(bench.objective, finalists, steady, judged, campaign.noise, expected)
    chosen = judged.get(result.winner.digest, "") if result.winner else "not checked"
    return recommendation(campaign, result, chosen)


def without_drift(
    launches: Sequence[ConfirmationLaunch], slope: float
) -> list[ConfirmationLaunch]:
    """Launches as they would have been in the middle of the confirmation.

    The slope is the search's, from other launches: it may be wrong by now without harm, for what
    is left or added cancels between rounds as the drift itself does, and widens the interval.
    """
    ordered = sorted(launches, key=lambda launch: launch.order)
    middle = (len(ordered) - 1) / 2
    return [
        launch.model_copy(
            update={
                "per_block": [
                    value * math.exp(slope * (middle - at)) for value in launch.per_block
                ]
            }
        )
        for at, launch in enumerate(ordered)
    ]


def order_of(round_: int, trials: Sequence[int]) -> list[int]:
    """Servers of a round in launching order: forwards, then backwards, in turn."""
    return list(trials) if round_ % 2 == 0 else list(reversed(trials))


def run_round(campaign: Campaign, round_: int, rounds: int) -> None:
    """Launch every server of a round that was not launched yet."""
    for trial in order_of(round_, list(campaign.servers)):
        launch = campaign.launch_of(round_, trial)
        if launch is None:
            order = 1 + max((each.order for each in campaign.keeper.launches()), default=-1)
            launch, blocks = confirm_server(campaign, round_, order, trial)
            campaign.keeper.keep_launch(launch, blocks)
            campaign.launches.append(launch)
        campaign.bench.observer(ConfirmationProgressed(round_, rounds, trial, launch.value))


def confirm_server(
    campaign: Campaign, round_: int, order: int, trial: int
) -> tuple[ConfirmationLaunch, list[Block]]:
    """One launch on the held-out prompts; a failure is recorded, not raised."""
    bench, args, run = campaign.bench, campaign.servers[trial], ServerRun()
    plan = LaunchPlan(
        number=trial,
        args=args,
        blocks=bench.workload.held_out_blocks,
        loads=campaign.sweep or (bench.objective.load,),
        folder=campaign.keeper.launch_folder(order),
        label=f"confirm-{round_}-{trial}",
    )
    common: dict[str, Any] = {
        "campaign": campaign.name,
        "round": round_,
        "order": order,
        "trial": trial,
        "digest": args.digest,
    }
    try:
        run_launch(bench, plan, run, never)
        launch = confirmed_launch(bench, run, common)
    except TrialFailure as failure:
        failed = ConfirmationLaunch(
            **common,
            value=None,
            failure=failure.kind.label,
            reason=failure.reason,
            seconds=run.seconds(),
        )
        return failed, run.blocks
    return launch, run.blocks


def confirmed_launch(
    bench: Bench, run: ServerRun, common: Mapping[str, Any]
) -> ConfirmationLaunch:
    """The record of a launch that was measured to the end; raises TrialFailure if it may not be
    believed."""
    limits = bench.workload.limits
    measurement = summarize(run.blocks, acceptance=run.acceptance, limits=limits)
    check_measurement(measurement)
    if len(measurement.summaries) > 1:
        return swept_launch(bench, run, common)
    summary = measurement.at(bench.objective.load)
    values = bench.objective.block_values(measurement)
    return ConfirmationLaunch(
        **common,
        value=bench.objective.value(measurement),
        per_block=[value if math.isfinite(value) else 0.0 for value in values],
        block_counts=counts_at(run, bench.objective.load),
        metrics=finite(summary.metrics),
        acceptance_length=summary.acceptance.length if summary.acceptance else None,
        seconds=run.seconds(),
    )


def swept_launch(bench: Bench, run: ServerRun, common: Mapping[str, Any]) -> ConfirmationLaunch:
    """The record of a launch whose load moved: every block in order, with its load."""
    values = block_series(bench, run.blocks)
    return ConfirmationLaunch(
        **common,
        value=geometric_mean(values),
        per_block=values,
        loads=[block.load.label for block in run.blocks],
        seconds=run.seconds(),
    )


# ---- fidelity ------------------------------------------------------------------------------
def answers_of(campaign: Campaign, trial: int, round_: int) -> list[RequestRecord]:
    """The answers of one launch, from its stored blocks."""
    launch = campaign.launch_of(round_, trial)
    if launch is None or launch.failure:
        return []
    return [
        record for block in campaign.keeper.launch_blocks(launch.order) for record in block.records
    ]


def check_fidelity(campaign: Campaign, finalist: Finalist, config: FidelityConfig) -> str:
    """Whether a finalist answers like the baseline, see `faithfulness`.

    The control is the baseline against itself in the next round: the noise floor of the machine.
    Rounds in which a launch failed have no answers and count for nothing.
    """
    rounds = range(max(campaign.rounds, 2))
    references = [it for round_ in rounds if (it := answers_of(campaign, 0, round_))]
    servers = [it for round_ in rounds if (it := answers_of(campaign, finalist.trial, round_))]
    nothing: list[RequestRecord] = []
    reference, again = [*references, nothing, nothing][:2]
    found = Compared(reference, again, [*servers, nothing][0], references, servers)
    return faithfulness(found, config, campaign.bench.workload.sampling.temperature)


# ---- the end -------------------------------------------------------------------------------
def recommendation(campaign: Campaign, result: Verdict, fidelity: str) -> RecommendationRecord:
    """The verdict as it is stored, shown and exported."""
    bench, winner = campaign.bench, result.winner
    args = campaign.servers[winner.trial if winner else 0]
    return RecommendationRecord(
        verdict="use" if winner else "keep_baseline",
        trial=winner.trial if winner else 0,
        server_args=args_record(args),
        digest=args.digest,
        ratio=winner.ratio if winner else None,
        low=winner.low if winner else None,
        high=winner.high if winner else None,
        constraints_met=winner.constraints_met if winner else True,
        fidelity=fidelity,
        held_out=True,
        smallest_detectable=result.smallest_detectable,
        reasons=list(result.reasons),
        decided_by=result.decided_by,
        finalists=list(result.finalists),
        is_simulated=bench.runner.is_simulated,
        objective=bench.objective.text,
        load=bench.objective.load.label,
        finished_utc=datetime.now(UTC).isoformat(),
    )
