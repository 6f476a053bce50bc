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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna

from tuner.config.study import SearchConfig
from tuner.errors import UsageError
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
FINALISTS, ROUNDS = 3, 4
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
    """How one seed went: launches until near the best (inf: never), true ratio of the pick at
    PICK_AT launches over the best, seconds until near, whether the pick is below the baseline,
    launches in all, and the true ratio of the pick after confirming the best three."""

    launches: float
    seconds: float
    pick: float
    worse: bool
    stopped: int
    confirmed: float = 1.0


def search(table: ReplayTable, arm: str, seed: int, budget: int) -> Outcome:
    """One search with one sampler and seed; launches are drawn alike for every arm."""
    sampler = arm if arm != "staged" else "random"
    config = SearchConfig(sampler=sampler, seed=seed)  # type: ignore[arg-type]
    # Exhaustive search of a small space is not what is compared here.
    ground = ground_of(table.landscape, config, launches=2, load=table.load.label)
    suggester, draw = suggester_of(arm, ground), random.Random(seed)
    records = [table.launch(table.baseline, {}, [], draw)]
    near, spent, pick, confirmed = math.inf, 0.0, 1.0, 1.0
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
            pick, confirmed = picked(table, suggester, records, draw)
        if launches >= PICK_AT and near < math.inf:
            break
    if launches < PICK_AT:
        pick, confirmed = picked(table, suggester, records, draw)
    if table.best <= 1.0 / NEAR:
        near, near_seconds = min(near, 0), 0.0
    shares = pick / table.best, confirmed / table.best
    worse = min(pick, confirmed) < NEAR
    return Outcome(near, near_seconds, shares[0], worse, launches, shares[1])


def picked(
    table: ReplayTable, suggester: Suggester, records: Sequence[TrialRecord], draw: random.Random
) -> tuple[float, float]:
    """True ratio of the server that an arm would recommend, before and after confirming its
    best FINALISTS with ROUNDS launches each; 1 for the baseline."""
    ranked = ranking(suggester, records)
    if not ranked:
        return 1.0, 1.0
    base = [table.launch(table.baseline, {}, [], draw) for _ in range(ROUNDS)]
    means = {
        digest: statistics.mean(
            math.log(table.launch(digest, {}, [off], draw).vs_baseline or 1e-9) for off in base
        )
        for digest in ranked[:FINALISTS]
    }
    winner = max(means, key=lambda digest: means[digest])
    return table.truth[ranked[0]], table.truth[winner] if means[winner] > 0 else 1.0


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
    good = sum(o.pick >= NEAR for o in outcomes) / len(outcomes)
    return [
        table.landscape.name,
        arm,
        _quantile(launches, 0.5),
        _quantile(launches, 0.9),
        _quantile(sorted(o.seconds for o in outcomes), 0.5),
        f"{statistics.mean(1 - o.pick for o in outcomes):.1%}",
        f"{good:.0%}",
        f"{sum(o.confirmed >= NEAR for o in outcomes) / len(outcomes):.0%}",
        f"{sum(o.worse for o in outcomes) / len(outcomes):.1%}",
    ]


def _quantile(values: Sequence[float], share: float) -> str:
    value = values[min(len(values) - 1, math.ceil(share * len(values)) - 1)]
    return f"{value:.0f}" if math.isfinite(value) else "never"


HEADER = ["landscape", "arm", "launches p50", "p90", "seconds p50", "regret at 12",
          "within 2 % at 12", "confirmed within 2 %", "worse than baseline"]  # fmt: skip


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
    optuna.logging.set_verbosity(optuna.logging.WARNING)
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
