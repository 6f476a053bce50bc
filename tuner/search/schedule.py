"""Owns the per-load schedule: depths confirmed at each load, and the table against one depth.

Two campaigns of interleaved launches on the held-out prompts, both under a load that moves
through the range: the chosen depths with the baseline, then the table with the best single
server. The table is recommended only where it wins by more than the noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.args import ServerArgs
from tuner.config.loader import LoadedStudy
from tuner.engines.depths import DepthTable
from tuner.errors import EngineError, UsageError
from tuner.events import Observer, ignore
from tuner.measure.records import LoadPoint, RequestRecord
from tuner.measure.statistics import Interval
from tuner.search.confirm import Campaign, run_round
from tuner.search.depth_choice import (
    Choice,
    confirmed_choice,
    family_of,
    searched_gains,
    worth_confirming,
)
from tuner.search.faithful import Compared, faithfulness
from tuner.search.loop import announce
from tuner.search.recording import args_record
from tuner.search.session import Session, open_session
from tuner.search.sweep import at_load, first_answers, sweep_of, swept_gain
from tuner.server.interrupts import raise_on_signals
from tuner.store.files import write_text
from tuner.store.record import (
    TABLE,
    ConfirmationLaunch,
    RecommendationRecord,
    ScheduleRecord,
    ScheduleStep,
    TrialRecord,
)


@dataclass(slots=True)
class Ladder:
    """What the schedule is made of: depths with their trials, loads, and where launches go."""

    session: Session
    loads: tuple[LoadPoint, ...]
    family: Mapping[int, TrialRecord]
    recommendation: RecommendationRecord

    @property
    def sweep(self) -> tuple[LoadPoint, ...]:
        """The load that moves through the range."""
        return sweep_of(self.loads)

    def args_of(self, depth: int) -> ServerArgs:
        """The server of one depth; 0 is the baseline."""
        if depth == 0:
            return self.session.candidates.baseline
        record = self.family[depth].requested_args
        return ServerArgs(record.flags, record.env)

    def number_of(self, depth: int) -> int:
        """The trial of one depth."""
        return self.family[depth].number if depth else 0

    def campaign(self, servers: Mapping[int, ServerArgs]) -> Campaign:
        """Interleaved launches of these servers, those that are stored already included."""
        session = self.session
        rounds = max(2, session.loaded.config.confirm.rounds)
        campaign = Campaign(session.bench, session.opened, rounds, servers, sweep=self.sweep)
        stored = session.opened.launches()
        campaign.launches = [each for each in stored if each.campaign == campaign.name]
        for round_ in range(rounds):
            run_round(campaign, round_, rounds)
        return campaign


def schedule_study(loaded: LoadedStudy, *, observer: Observer = ignore) -> ScheduleRecord:
    """Find, confirm and measure the depth table of a study that was run; stores the verdict.

    Raises:
        UsageError: the study has one load, no table, or no confirmation yet.
        EngineError: a server did not run at every load.
        Interrupted: the user stopped it; finished launches are stored, run it again.
    """
    with raise_on_signals(), open_session(loaded, observer, new=False) as session:
        announce(session)
        ladder = build_ladder(session)
        record = measure_schedule(ladder)
        found = ladder.recommendation.model_copy(update={"schedule": record})
        session.opened.keep_recommendation(found)
        return record


def build_ladder(session: Session) -> Ladder:
    """The depths that the search measured at every load; raises UsageError when there are none."""
    name, bench = session.opened.name, session.bench
    recommendation = session.opened.store.recommendation(name)
    if recommendation is None or not session.history.baselines:
        raise UsageError(f"study {name}: must be confirmed first, got no recommendation.",
                         f"Run `tuner confirm {name}`.")  # fmt: skip
    loads = tuple(load for load in bench.workload.loads if load.concurrency)
    if len(loads) < 2:
        raise UsageError(
            f"study {name}: workload.load must have at least two concurrencies for a schedule, "
            f"got {len(loads)}.",
            "Add load points, such as [{concurrency: 1}, {concurrency: 8}], and run it again.",
        )
    anchor = next((r for r in session.history.records if r.number == recommendation.trial), None)
    family = family_of(bench.engine, session.history.records, anchor)
    if not family:
        raise UsageError(
            f"study {name}: must have measured servers that a table of depths can hold, got none.",
            "Tables are for chains (topk 1) on SGLang and for draft tokens on vLLM.",
        )
    return Ladder(session, loads, family, recommendation)


def measure_schedule(ladder: Ladder) -> ScheduleRecord:
    """Both campaigns, and the verdict."""
    bench, history = ladder.session.bench, ladder.session.history
    gains = [
        searched_gains(bench.objective, history, ladder.family, load.label)
        for load in ladder.loads
    ]
    depths = worth_confirming(gains, history.launch_noise().margin())
    if depths == [0]:
        return keep_single(ladder, {}, 0, "Speculation does not pay at any load.")
    first = ladder.campaign({ladder.number_of(depth): ladder.args_of(depth) for depth in depths})
    choices = {load: choose_at(ladder, first, depths, load) for load in ladder.loads}
    single = best_single(ladder, first, depths)
    found = {choice.depth for choice in choices.values()}
    if len(found) == 1:
        return keep_single(ladder, choices, single, "One depth is best at every load.")
    return measure_table(ladder, choices, single, first)


def choose_at(ladder: Ladder, campaign: Campaign, depths: list[int], load: LoadPoint) -> Choice:
    """The confirmed depth at one load."""
    series = {
        depth: [at_load(launch, load.label) for launch in launches_of(campaign, ladder, depth)]
        for depth in depths
    }
    return confirmed_choice(series, campaign.bench.objective.direction)


def best_single(ladder: Ladder, campaign: Campaign, depths: list[int]) -> int:
    """The depth that is best over the whole moving load; the table has to beat it."""
    direction = campaign.bench.objective.direction
    baseline = launches_of(campaign, ladder, 0)
    gains = {
        depth: swept_gain(launches_of(campaign, ladder, depth), baseline, direction).ratio
        for depth in depths
        if depth
    }
    top = max(gains, key=lambda depth: gains[depth])
    return top if gains[top] > 1 else 0


def launches_of(campaign: Campaign, ladder: Ladder, depth: int) -> list[ConfirmationLaunch]:
    """The launches of one depth, in the order of rounds."""
    return measured_launches(campaign, ladder.number_of(depth))


def measured_launches(campaign: Campaign, number: int) -> list[ConfirmationLaunch]:
    """The launches of one trial, in the order of rounds; raises EngineError when one failed."""
    found = sorted(
        (each for each in campaign.launches if each.trial == number), key=lambda each: each.round
    )
    return [require_measured(each) for each in found]


def require_measured(launch: ConfirmationLaunch) -> ConfirmationLaunch:
    """The launch, unless it failed (EngineError): a table with a hole in it is no table."""
    if launch.failure:
        what = "the table" if launch.trial == TABLE else f"trial {launch.trial}"
        raise EngineError(
            f"schedule: {what} must run at every load, got {launch.failure}: {launch.reason}",
            "Correct the engine's limits for the highest concurrency, or drop that load point.",
        )
    return launch


def measure_table(
    ladder: Ladder, choices: Mapping[LoadPoint, Choice], single: int, first: Campaign
) -> ScheduleRecord:
    """Launch the table beside the best single server, interleaved, under the moving load."""
    table = table_of(ladder, choices, str(ladder.session.opened.results.base / "schedule"))
    servers = {ladder.number_of(single): ladder.args_of(single), TABLE: table.args}
    campaign = ladder.campaign(servers)
    gain = swept_gain(
        measured_launches(campaign, TABLE),
        measured_launches(campaign, ladder.number_of(single)),
        campaign.bench.objective.direction,
    )
    exported = table_of(ladder, choices, "")
    record = record_of(ladder, choices, single, gain)
    return record.model_copy(
        update={
            "verdict": "use" if gain.is_gain else "keep_single",
            "reasons": [] if gain.is_gain else ["It does not win by more than the noise."],
            "server_args": args_record(exported.args),
            "digest": exported.args.digest,
            "files": dict(exported.files),
            "fidelity": fidelity_of(ladder, first, campaign),
        }
    )


def table_of(ladder: Ladder, choices: Mapping[LoadPoint, Choice], folder: str) -> DepthTable:
    """The engine's table of the chosen depths; its files are written where it will be read.

    Raises:
        UsageError: the engine refuses it.
    """
    bench = ladder.session.bench
    best = {load.concurrency or 1: choice.depth for load, choice in choices.items()}
    table = bench.engine.scheduled(ladder.args_of(next(iter(ladder.family))), best, folder)
    broken = [] if table is None else bench.engine.violations(table.args, bench.facts)
    if table is None or broken:
        why = broken[0].message if broken else "it has no table for this server"
        raise UsageError(
            f"schedule: the engine must take the table, got: {why}.",
            "Export the single server, or correct what the engine refuses.",
        )
    if folder:
        for name, text in table.files.items():
            write_text(ladder.session.opened.results.base / "schedule" / name, text)
    return table


def fidelity_of(ladder: Ladder, first: Campaign, second: Campaign) -> str:
    """Whether the table answers as the baseline does, see `faithfulness`."""
    config = ladder.session.loaded.config.fidelity
    found = Compared(answers(first, 0, 0), answers(first, 0, 1), answers(second, TABLE, 0))
    return faithfulness(found, config, first.bench.workload.sampling.temperature)


def answers(campaign: Campaign, trial: int, round_: int) -> list[RequestRecord]:
    """The first answers of one launch."""
    launch = campaign.launch_of(round_, trial)
    return first_answers(campaign.keeper.launch_blocks(launch.order)) if launch else []


def keep_single(
    ladder: Ladder, choices: Mapping[LoadPoint, Choice], single: int, reason: str
) -> ScheduleRecord:
    """The end without a table."""
    record = record_of(ladder, choices, single, None)
    return record.model_copy(update={"reasons": [reason]})


def record_of(
    ladder: Ladder, choices: Mapping[LoadPoint, Choice], single: int, gain: Interval | None
) -> ScheduleRecord:
    """What both ends have in common."""
    steps = [
        ScheduleStep(
            load=load.label,
            concurrency=load.concurrency or 1,
            depth=choice.depth,
            ratio=choice.gain.ratio,
            low=choice.gain.low,
            high=choice.gain.high,
        )
        for load, choice in choices.items()
    ]
    return ScheduleRecord(
        verdict="keep_single",
        steps=steps,
        single=ladder.number_of(single),
        single_depth=single,
        sweep=[load.label for load in ladder.sweep],
        ratio=gain.ratio if gain else None,
        low=gain.low if gain else None,
        high=gain.high if gain else None,
        launches=gain.replicates if gain else 0,
        is_simulated=ladder.recommendation.is_simulated,
    )
