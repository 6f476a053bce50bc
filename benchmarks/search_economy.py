"""How few launches each sampler needs on recorded and generated landscapes. One command:

    python -m benchmarks.search_economy [LANDSCAPE …] [--seeds 50] [--arms model,tpe,random]

Everything is replayed on a virtual clock through the product's own suggesters, records, pruner
and ranking; nothing is launched. "Truth" is the landscape's own: launches are as noisy as they
were recorded, the truth is the fastest of each block's repeats (the mean of fewer than three).
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import optuna

from benchmarks.replayed_confirmation import Recommended, recommend
from tuner.config.study import SearchConfig
from tuner.errors import UsageError
from tuner.measure.landscape import speed_of
from tuner.search.landscape import ground_of
from tuner.search.model_sampler import ModelSuggester
from tuner.search.replay_table import ReplayTable, tables_of
from tuner.search.sampling import (
    Ground,
    Proposal,
    Situation,
    Suggester,
    make_suggester,
    situation_of,
)
from tuner.store.record import TrialRecord

NEAR = 0.98
PICK_AT = 12
HERE = Path(__file__).parent / "landscapes"


# ---- arms ------------------------------------------------------------------------------------
@dataclass(slots=True)
class Staged:
    """One parameter at a time: from the middle of the space, always one change away from the
    best so far. What people do by hand, and generous to them: noise never makes them stop."""

    ground: Ground

    def propose(self, situation: Situation) -> Proposal | None:
        """The server with the fewest changes to the best so far; ties by the seed."""
        servers = self.ground.survey.servers
        measured = [r for r in situation.records if r.state == "complete" and r.vs_baseline]
        best = max(measured, key=lambda r: r.vs_baseline or 0.0, default=None)
        center = dict(best.params) if best else dict(servers[len(servers) // 2][0])
        nearest = min(
            situation.remaining,
            key=lambda i: (_differences(center, servers[i][0]), (i * 7919 + situation.seed) % 997),
        )
        return Proposal(nearest)


def _differences(a: Mapping[str, object], b: Mapping[str, object]) -> int:
    return sum(a.get(name) != b.get(name) for name in {*a, *b})


def suggester_of(arm: str, ground: Ground) -> Suggester:
    """The suggester of an arm."""
    return Staged(ground) if arm == "staged" else make_suggester(ground)


# ---- one search ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Outcome:
    """How one seed went.

    Args:
        launches: until a server near the best was launched (inf: never); seconds: until then.
        pick: true ratio over the best's of what looks best at PICK_AT launches.
        stopped: launches in all.
        confirmed: what a study recommends after PICK_AT launches.
        best: the best true ratio to the baseline.
    """

    launches: float
    seconds: float
    pick: float
    stopped: int
    confirmed: Recommended
    best: float

    @property
    def regret(self) -> float:
        """How far the recommendation is below the best."""
        return 1.0 - self.confirmed.ratio / self.best

    @property
    def is_worse(self) -> bool:
        """True when what is recommended is truly slower than the baseline."""
        return self.confirmed.ratio < 1.0


def search(table: ReplayTable, arm: str, seed: int, budget: int) -> Outcome:
    """One search with one sampler and seed; launches are drawn alike for every arm."""
    sampler = arm if arm != "staged" else "random"
    config = SearchConfig(sampler=sampler, seed=seed)  # type: ignore[arg-type]
    # Exhaustive search of a small space is not what is compared here.
    ground = ground_of(table.landscape, config, launches=2, load=table.load.label)
    suggester, draw = suggester_of(arm, ground), random.Random(seed)
    records = [table.launch(table.baseline, {}, [], draw)]
    near, spent, pick = math.inf, 0.0, 1.0
    near_seconds, launches, confirmed = math.inf, 0, Recommended()
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
            confirmed = recommend(table, suggester, records, draw)
        if launches >= PICK_AT and near < math.inf:
            break
    if launches < PICK_AT:
        pick = picked(table, suggester, records)
        confirmed = recommend(table, suggester, records, draw)
    if table.best <= 1.0 / NEAR:
        near, near_seconds = min(near, 0), 0.0
    return Outcome(near, near_seconds, pick / table.best, launches, confirmed, table.best)


def picked(table: ReplayTable, suggester: Suggester, records: Sequence[TrialRecord]) -> float:
    """True ratio of the server that looks best before any is confirmed; 1 for the baseline."""
    ranked = ranking(suggester, records)
    return table.truth[ranked[0]] if ranked else 1.0


def ranking(suggester: Suggester, records: Sequence[TrialRecord]) -> list[str]:
    """Servers that look better than the baseline, best first: by the model's belief, or by
    their own launch."""
    if isinstance(suggester, ModelSuggester):
        return suggester.ranking(records)
    measured = [r for r in records if r.state == "complete" and (r.vs_baseline or 0.0) > 1.0]
    return [r.digest for r in sorted(measured, key=lambda r: -(r.vs_baseline or 0.0))]


# ---- the table -------------------------------------------------------------------------------
def row(table: ReplayTable, arm: str, outcomes: Sequence[Outcome]) -> list[str]:
    """One line of the table."""
    launches = sorted(o.launches for o in outcomes)
    seconds = sorted(o.seconds for o in outcomes)
    count = len(outcomes)
    intervals = [held for o in outcomes for held in o.confirmed.covered]
    return [
        table.landscape.name,
        arm,
        _quantile(launches, 0.5),
        _quantile(launches, 0.9),
        _quantile(seconds, 0.5),
        f"{sum(o.pick >= NEAR for o in outcomes) / count:.0%}",
        f"{sum(o.regret <= 1 - NEAR for o in outcomes) / count:.0%}",
        f"{noise_bound(table):.0%}",
        f"{statistics.mean(o.regret for o in outcomes):.1%}",
        f"{sum(o.is_worse for o in outcomes) / count:.1%}",
        f"{statistics.mean(intervals):.0%}" if intervals else "-",
    ]


def noise_bound(table: ReplayTable, draws: int = 200) -> float:
    """How often somebody who launched every server as often as was recorded less once would name
    a server within 2 % of the best: how well the table knows its own truth."""
    draw, landscape, label = random.Random(1), table.landscape, table.load.label
    found = 0
    for _ in range(draws):
        fewer = [
            replace(s, launches=tuple(draw.sample(s.launches, max(1, len(s.launches) - 1))))
            for s in landscape.servers
        ]
        speeds = [speed_of(s, label, is_fastest=landscape.is_repeated(label)) for s in fewer]
        best = max(range(len(fewer)), key=lambda i: speeds[i] if math.isfinite(speeds[i]) else 0)
        digest = landscape.servers[best].args.digest
        found += table.truth[digest] >= NEAR * table.best
    return found / draws


def _quantile(values: Sequence[float], share: float) -> str:
    value = values[min(len(values) - 1, math.ceil(share * len(values)) - 1)]
    return f"{value:.0f}" if math.isfinite(value) else "never"


HEADER = ["landscape", "arm", "launches p50", "p90", "seconds p50", "looks best within 2 %",
          "recommended within 2 %", "noise bound", "regret", "worse than baseline",
          "intervals hold"]  # fmt: skip


def shipped_landscapes() -> list[Path]:
    """Every landscape beside this file; the texts that belong to some of them are none."""
    tables = [path for path in HERE.glob("*.json") if not path.name.endswith(".texts.json")]
    return sorted([*HERE.glob("*.csv"), *tables])


def show(write: Callable[[str], object], cells: Sequence[str]) -> None:
    """One Markdown line."""
    write("| " + " | ".join(cells) + " |\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("landscapes", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--arms", default="model,tpe,gp,random,grid,staged")
    options = parser.parse_args(argv)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    paths = options.landscapes or shipped_landscapes()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    show(sys.stdout.write, HEADER)
    show(sys.stdout.write, ["---"] * len(HEADER))
    for table in tables_of(paths):
        for arm in options.arms.split(","):
            try:
                outcomes = [search(table, arm, seed, options.budget) for seed in seeds]
            except UsageError as error:
                print(f"{arm} skipped: {error.message}", file=sys.stderr)
                continue
            show(sys.stdout.write, row(table, arm, outcomes))
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
