"""How few launches each sampler needs on recorded and generated landscapes. One command:

    python benchmarks/search_economy.py [LANDSCAPE …] [--seeds 50] [--arms model,tpe,random]

Everything is replayed on a virtual clock through the product's own suggesters, records, pruner
and ranking; nothing is launched. "Truth" is the landscape's own: launches are as noisy as they
were recorded, the truth is the fastest of each block's repeats.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tuner.config.study import SearchConfig
from tuner.errors import UsageError
from tuner.measure.landscape import Landscape, RecordedLaunch, RecordedServer, read_landscape
from tuner.measure.metrics import summarize
from tuner.measure.records import LoadPoint, Prompt
from tuner.search.bench import ServerRun
from tuner.search.landscape import ground_of
from tuner.search.model_sampler import ModelSuggester
from tuner.search.objective import Objective
from tuner.search.recording import counts_at, load_point_record
from tuner.search.replay_runner import acceptance_of, replayed_block, rows_of_block
from tuner.search.sampling import (
    Ground,
    Proposal,
    Situation,
    Suggester,
    make_suggester,
    situation_of,
)
from tuner.store.record import ArgsRecord, Seconds, TrialRecord

METRIC = "output_tokens_per_s"
NEAR = 0.98
PICK_AT = 12
HERE = Path(__file__).parent / "landscapes"
PROMPT = (Prompt("recorded", ()),)


# ---- launches --------------------------------------------------------------------------------
@dataclass(slots=True)
class Table:
    """A landscape ready to be searched: every recorded launch as a trial record."""

    landscape: Landscape
    load: LoadPoint
    objective: Objective = field(init=False)
    truth: dict[str, float] = field(init=False)
    launches: dict[str, list[TrialRecord]] = field(init=False)

    def __post_init__(self) -> None:
        label = self.load.label
        self.objective = Objective(METRIC, True, self.load)
        ratios = self.landscape.ratios(label)
        servers = self.landscape.servers
        self.truth = {s.args.digest: r for s, r in zip(servers, ratios, strict=True)}
        self.launches = {
            s.args.digest: [self._record(s, launch) for launch in s.launches] for s in servers
        }

    @property
    def best(self) -> float:
        """The best true ratio; 1 where the baseline wins."""
        return max(1.0, max(r for r in self.truth.values() if math.isfinite(r)))

    @property
    def baseline(self) -> str:
        """Digest of the baseline."""
        return self.landscape.baseline.args.digest

    def _record(self, server: RecordedServer, launch: RecordedLaunch) -> TrialRecord:
        args = ArgsRecord.model_validate(server.args.to_json())
        common = {"number": 0, "requested_args": args, "digest": server.args.digest}
        if launch.failure:
            seconds = Seconds(launch=launch.launch_s, total=launch.launch_s)
            return TrialRecord(
                state="failed", failure=launch.failure, seconds=seconds, **common
            )  # fmt: skip
        run = self._run(launch)
        measurement = summarize(run.blocks, run.acceptance)
        measure = run.blocks[-1].end_s - run.blocks[0].start_s
        return TrialRecord(
            state="baseline" if server.is_baseline else "complete",
            value=self.objective.value(measurement),
            acceptance_per_position=list(launch.per_position),
            load_points=[
                load_point_record(each, counts_at(run, each.load))
                for each in measurement.summaries
            ],
            seconds=Seconds(
                launch=launch.launch_s, measure=measure, total=launch.launch_s + measure
            ),
            **common,
        )

    def _run(self, launch: RecordedLaunch) -> ServerRun:
        rows = launch.blocks[self.load.label]
        run, clock = ServerRun(), 0.0
        for index in range(len(rows)):
            chosen = rows_of_block(rows, index, len(rows))
            block = replayed_block(index, self.load, PROMPT, chosen, clock)
            clock = block.end_s
            run.blocks.append(block)
            counted = acceptance_of(chosen)
            if counted is not None:
                run.block_acceptance[self.load, index] = counted
        return run

    def launch(
        self,
        digest: str,
        params: dict[str, object],
        known: Sequence[TrialRecord],
        draw: random.Random,
    ) -> TrialRecord:
        """One noisy launch of a server, compared with the baselines known so far."""
        made = draw.choice(self.launches[digest])
        if made.state == "failed":
            return made.model_copy(update={"params": params, "number": len(known)})
        base = [r for r in known if r.state == "baseline"] or [made]
        series = [self._series(record) for record in base]
        pooled = np.exp(np.mean(np.log(np.array(series)), axis=0))
        ratio = self.objective.ratio(self._series(made), tuple(pooled))
        return made.model_copy(
            update={"params": params, "vs_baseline": ratio, "number": len(known)}
        )

    def _series(self, record: TrialRecord) -> list[float]:
        return record.load_points[0].per_block[METRIC]


# ---- arms ------------------------------------------------------------------------------------
@dataclass(slots=True)
class Staged:
    """One parameter at a time from the middle of each, then the best values together: what
    people do by hand."""

    ground: Ground
    _queue: list[int] = field(default_factory=list)

    def propose(self, situation: Situation) -> Proposal | None:
        """The next server of the current stage; in the end whatever is nearest to the best."""
        servers = self.ground.survey.servers
        measured = [r for r in situation.records if r.state == "complete" and r.vs_baseline]
        best = max(measured, key=lambda r: r.vs_baseline or 0.0, default=None)
        center = dict(best.params) if best else dict(servers[len(servers) // 2][0])
        nearest = min(
            situation.remaining,
            key=lambda i: (_differences(center, servers[i][0]), (i * 7919 + situation.seed) % 997),
        )
        return Proposal(nearest)


def _differences(a: dict[str, object], b: object) -> int:
    other = dict(b)  # type: ignore[call-overload]
    return sum(a.get(name) != other.get(name) for name in {*a, *other})


def suggester_of(arm: str, ground: Ground) -> Suggester:
    """The suggester of an arm."""
    return Staged(ground) if arm == "staged" else make_suggester(ground)


# ---- one search ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Outcome:
    """How one seed went: launches until near the best (inf: never), true ratio of the pick at
    PICK_AT launches over the best, seconds until near, whether the pick is below the baseline."""

    launches: float
    seconds: float
    pick: float
    worse: bool
    stopped: int


def search(table: Table, arm: str, seed: int, budget: int) -> Outcome:
    """One search with one sampler and seed; launches are drawn alike for every arm."""
    sampler = arm if arm != "staged" else "random"
    config = SearchConfig(sampler=sampler, seed=seed)  # type: ignore[arg-type]
    # Exhaustive search of a small space is not what is compared here.
    ground = ground_of(table.landscape, config, launches=2, load=table.load.label)
    suggester, draw = suggester_of(arm, ground), random.Random(seed)
    records = [table.launch(table.baseline, {}, [], draw)]
    near, spent, pick = math.inf, 0.0, 1.0
    near_seconds, launches = math.inf, 0
    while launches < budget:
        if launches and launches % config.baseline_every == 0:
            records.append(table.launch(table.baseline, {}, records, draw))
        situation = situation_of(ground, records, set(), len(records))
        proposal = suggester.propose(situation) if situation else None
        if proposal is None:
            break
        params, args = ground.survey.servers[proposal.index]
        record = table.launch(args.digest, dict(params), records, draw)
        records.append(record)
        launches += 1
        spent += record.seconds.total
        ratio = table.truth[args.digest]
        if math.isfinite(ratio) and ratio >= NEAR * table.best and near == math.inf:
            near, near_seconds = launches, spent
        if launches == PICK_AT:
            pick = picked(table, suggester, records)
        if launches >= PICK_AT and near < math.inf:
            break
    if launches < PICK_AT:
        pick = picked(table, suggester, records)
    if table.best <= 1.0 / NEAR:
        near, near_seconds = min(near, 0), 0.0
    return Outcome(near, near_seconds, pick / table.best, pick < NEAR, launches)


def picked(table: Table, suggester: Suggester, records: Sequence[TrialRecord]) -> float:
    """True ratio of the server that an arm would recommend; 1 for the baseline."""
    measured = [r for r in records if r.state == "complete" and r.vs_baseline]
    if not measured:
        return 1.0
    if isinstance(suggester, ModelSuggester):
        ranked = suggester.ranking(records)
        return table.truth[ranked[0]] if ranked else 1.0
    best = max(measured, key=lambda r: r.vs_baseline or 0.0)
    return table.truth[best.digest] if (best.vs_baseline or 0.0) > 1.0 else 1.0


# ---- the table -------------------------------------------------------------------------------
def row(table: Table, arm: str, outcomes: Sequence[Outcome]) -> list[str]:
    """One line of the table."""
    launches = sorted(o.launches for o in outcomes)
    good = sum(o.pick >= NEAR for o in outcomes) / len(outcomes)
    return [
        table.landscape.name,
        arm,
        _quantile(launches, 0.5),
        _quantile(launches, 0.9),
        _quantile(sorted(o.seconds for o in outcomes), 0.5),
        f"{statistics.mean(1 - o.pick for o in outcomes):.1%}",
        f"{good:.0%}",
        f"{sum(o.worse for o in outcomes) / len(outcomes):.1%}",
    ]


def _quantile(values: Sequence[float], share: float) -> str:
    value = values[min(len(values) - 1, math.ceil(share * len(values)) - 1)]
    return f"{value:.0f}" if math.isfinite(value) else "never"


HEADER = ["landscape", "arm", "launches p50", "p90", "seconds p50", "regret at 12",
          "within 2 % at 12", "worse than baseline"]  # fmt: skip


def tables_of(paths: Iterable[Path]) -> list[Table]:
    """Every landscape at its first load point."""
    found = []
    for path in paths:
        landscape = read_landscape(path)
        label = landscape.loads[0]
        is_closed = label[:1] == "c" and label[1:].isdigit()
        load = LoadPoint(concurrency=int(label[1:])) if is_closed else LoadPoint(concurrency=1)
        found.append(Table(landscape, load))
    return found


def show(write: Callable[[str], object], cells: Sequence[str]) -> None:
    """One Markdown line."""
    write("| " + " | ".join(cells) + " |\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("landscapes", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--arms", default="model,tpe,gp,random,grid,staged")
    options = parser.parse_args(argv)
    paths = options.landscapes or sorted([*HERE.glob("*.csv"), *HERE.glob("*.json")])
    show(sys.stdout.write, HEADER)
    show(sys.stdout.write, ["---"] * len(HEADER))
    for table in tables_of(paths):
        for arm in options.arms.split(","):
            try:
                outcomes = [search(table, arm, s, options.budget) for s in range(options.seeds)]
            except UsageError as error:
                print(f"{arm} skipped: {error.message}", file=sys.stderr)
                continue
            show(sys.stdout.write, row(table, arm, outcomes))
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
