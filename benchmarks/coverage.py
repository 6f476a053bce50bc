"""Do the intervals hold what they promise? Simulated launches, blocks, drift and outliers.

SIMULATED: no server is launched. Each row is a kind of machine; each study confirms finalists
against the baseline in A B B A rounds of fresh launches, as the tuner does. Printed are

  coverage   how often the 95 % interval of one finalist holds its true gain (93-97 % is right)
  false use  how often any finalist is recommended although none helps (below 2.5 % is right)
  power      how often a finalist that is truly 2, 5 or 10 % faster is recommended
  pruned     how often a server equal to the baseline is stopped early, looked at after each block
  A/A        how often two names of one server are told apart

    python -m benchmarks.coverage [--studies 2000] [--rounds 4] [--finalists 3]
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np

from tuner.measure.noise import drift, launch_levels, launch_noise, smallest_detectable_gain
from tuner.measure.statistics import (
    Interval,
    family_level,
    gain_intervals,
    log_ratios,
    paired_bound,
)

GAINS = (1.02, 1.05, 1.10)


@dataclass(frozen=True)
class Machine:
    """How much a kind of machine varies, in log units (about relative).

    Args:
        launch_sd: between launches of one server.
        block_sd: between blocks of one launch, prompts being equal.
        drift: per launch, for the whole machine.
        slow_launches: share of launches that are slow as a whole, by about `slow_by`.
        slow_blocks: share of blocks disturbed by another process, by about a quarter.
    """

    name: str
    launch_sd: float
    block_sd: float
    drift: float = 0.0
    slow_launches: float = 0.0
    slow_by: float = 0.25
    slow_blocks: float = 0.0

    def launch(self, draw: np.random.Generator, gain: float, position: int) -> list[float]:
        """Per-block speeds of one launch at a position of the study."""
        level = math.log(gain) + draw.normal(0, self.launch_sd) + self.drift * position
        if draw.random() < self.slow_launches:
            level -= draw.exponential(self.slow_by)
        prompts = np.linspace(-0.3, 0.3, BLOCKS)
        blocks = level + prompts + draw.normal(0, self.block_sd, BLOCKS)
        blocks -= (draw.random(BLOCKS) < self.slow_blocks) * draw.exponential(0.25, BLOCKS)
        return [float(speed) for speed in 100 * np.exp(blocks)]


BLOCKS = 6
MACHINES = (
    Machine("quiet GPU host", launch_sd=0.005, block_sd=0.02),
    Machine("GPU host", launch_sd=0.015, block_sd=0.04),
    Machine("GPU host, drift 0.5 %", launch_sd=0.015, block_sd=0.04, drift=-0.005),
    Machine("GPU host, outliers", 0.015, 0.04, slow_launches=0.03, slow_blocks=0.05),
    Machine("two noisy cores", 0.05, 0.05, slow_launches=0.1, slow_blocks=0.1),
)


def confirm(
    machine: Machine, draw: np.random.Generator, gains: list[float], rounds: int, level: float
) -> list[Interval]:
    """Intervals of finalists after A B B A rounds; one baseline launch per round."""
    launches: list[list[list[float]]] = [[] for _ in range(len(gains) + 1)]
    position = 0
    for turn in range(rounds):
        order = list(range(len(gains) + 1))
        for server in order if turn % 2 == 0 else order[::-1]:
            gain = 1.0 if server == 0 else gains[server - 1]
            launches[server].append(machine.launch(draw, gain, position))
            position += 1
    return gain_intervals(launches[1:], launches[0], level=level)


def coverage(machine: Machine, draw: np.random.Generator, plan: argparse.Namespace) -> float:
    """Share of intervals that hold the true gain."""
    gains, held = [1.07, 1.0, 0.9][: plan.finalists], 0
    for _ in range(plan.studies):
        intervals = confirm(machine, draw, gains, plan.rounds, 0.95)
        held += sum(i.low <= gain <= i.high for i, gain in zip(intervals, gains, strict=True))
    return held / plan.studies / len(gains)


def used(
    machine: Machine, draw: np.random.Generator, gain: float, plan: argparse.Namespace
) -> float:
    """Share of studies with any finalist recommended; one has the gain, the others none."""
    gains = [gain] + [1.0] * (plan.finalists - 1)
    level = family_level(0.95, plan.finalists)
    hits = 0
    for _ in range(plan.studies):
        intervals = confirm(machine, draw, gains, plan.rounds, level)
        hits += any(interval.is_gain for interval in intervals)
    return hits / plan.studies


def told_apart(machine: Machine, draw: np.random.Generator, plan: argparse.Namespace) -> float:
    """Share of A/A comparisons whose interval excludes 1 on either side."""
    hits = 0
    for _ in range(plan.studies):
        interval = confirm(machine, draw, [1.0], plan.rounds, 0.95)[0]
        hits += interval.is_gain or interval.is_loss
    return hits / plan.studies


def pruned(machine: Machine, draw: np.random.Generator, plan: argparse.Namespace) -> float:
    """Share of servers equal to the baseline that a pruner would stop, looking at each block."""
    stopped = 0
    for _ in range(plan.studies):
        sentinels = [machine.launch(draw, 1.0, position) for position in range(3)]
        noise = launch_noise(sentinels)
        ratios = log_ratios(machine.launch(draw, 1.0, 3), sentinels[0])
        looks = [
            paired_bound(ratios[:n], margin=noise.margin()).upper < 1 for n in range(1, BLOCKS + 1)
        ]
        stopped += any(looks)
    return stopped / plan.studies


def drift_found(machine: Machine, draw: np.random.Generator, plan: argparse.Namespace) -> float:
    """Share of studies with six sentinels, eight launches apart, that call the drift real."""
    places = [0, 8, 16, 24, 32, 40]
    found = 0
    for _ in range(plan.studies):
        levels = launch_levels([machine.launch(draw, 1.0, place) for place in places])
        found += drift(places, levels).is_significant
    return found / plan.studies


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="coverage of the intervals, simulated")
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--finalists", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    plan = parser.parse_args()
    print(f"SIMULATED: {plan.studies} studies per cell, {plan.rounds} rounds, {BLOCKS} blocks, "
          f"{plan.finalists} finalists")  # fmt: skip
    print(f"{'machine':24} {'coverage':>8} {'false use':>9} "
          f"{'power 2%':>8} {'5%':>6} {'10%':>6} {'A/A':>6} {'pruned':>6} {'drift':>6} "
          f"{'detects':>7}")  # fmt: skip
    for machine in MACHINES:
        draw = np.random.default_rng(plan.seed)
        cells = [coverage(machine, draw, plan), used(machine, draw, 1.0, plan)]
        cells += [used(machine, draw, gain, plan) for gain in GAINS]
        cells += [check(machine, draw, plan) for check in (told_apart, pruned, drift_found)]
        sd = math.hypot(machine.launch_sd, machine.block_sd / math.sqrt(BLOCKS))
        least = smallest_detectable_gain(sd, plan.rounds, finalists=plan.finalists)
        widths = (8, 9, 8, 6, 6, 6, 6, 6)
        shown = " ".join(f"{c:>{w}.1%}" for c, w in zip(cells, widths, strict=True))
        print(f"{machine.name:24} {shown} {least:>6.3f}x", flush=True)


if __name__ == "__main__":
    main()
