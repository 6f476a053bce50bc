"""What the paired pruner saves on landscapes, and how often it stops a good server. One command:

    python -m benchmarks.pruner_economy [LANDSCAPE …] [--seeds 50]

Every server's launch is held against a launch of the best one, block by block, as in a search
that found the best first: the hardest case for servers that are nearly as good.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.search_economy import shipped_landscapes
from tuner.measure.noise import launch_noise, pair_margin
from tuner.search.pruning import Judged, PairedPruner, Reference
from tuner.search.replay_table import METRIC, ReplayTable, tables_of


@dataclass(frozen=True, slots=True)
class Pruned:
    """Per launch: share of measuring saved, GPU-seconds saved, good servers (within 1 %) stopped
    as a share of `good` of them."""

    saved: float
    false: float
    good: int
    seconds: float = 0.0


def prune(table: ReplayTable, seeds: int) -> Pruned:
    """The paired pruner against a launch of the best server, margin from two baselines."""
    total = saved = good = false = seconds = 0.0
    best = max(table.truth, key=lambda d: table.truth[d] if math.isfinite(table.truth[d]) else 0)
    for seed in range(seeds):
        draw = random.Random(seed)
        base = [draw.choice(table.launches[table.baseline]) for _ in range(2)]
        series = [table.series(record) for record in base]
        margin = pair_margin(launch_noise(series))
        reference = Reference(1, tuple(table.series(draw.choice(table.launches[best]))))
        pruner = PairedPruner(Judged(METRIC, table.load.label, True, len(reference.values)))
        for digest, ratio in table.truth.items():
            record = draw.choice(table.launches[digest])
            if not record.load_points or digest in (best, table.baseline):
                continue
            values = table.series(record)
            stop = _stopped_at(pruner, values, reference, margin)
            share = 1.0 - stop / len(values)
            total, saved = total + 1.0, saved + share
            seconds += share * record.seconds.measure
            is_good = ratio >= 0.99 * table.truth[best]
            good, false = good + is_good, false + (is_good and stop < len(values))
    count = max(total, 1.0)
    return Pruned(saved / count, false / max(good, 1.0), int(good), seconds / count)


def _stopped_at(
    pruner: PairedPruner, values: Sequence[float], reference: Reference, margin: float
) -> int:
    for count in range(1, len(values)):
        if pruner.judge(values[:count], reference, margin) is not None:
            return count
    return len(values)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("landscapes", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=50)
    options = parser.parse_args(argv)
    paths = options.landscapes or shipped_landscapes()
    sys.stdout.write(
        "| landscape | measuring saved | seconds per launch | good launches | stopped |\n"
        "|---|---|---|---|---|\n"
    )
    for table in tables_of(paths):
        found = prune(table, options.seeds)
        cells = [
            table.landscape.name,
            f"{found.saved:.0%}",
            f"{found.seconds:.2g}",
            str(found.good),
            f"{found.false:.1%}",
        ]
        sys.stdout.write("| " + " | ".join(cells) + " |\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
