"""Landscapes that break what the model assumes: it must not recommend harm, and still find gains.

Generated here: nothing is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import pytest

from benchmarks.search_economy import search
from tuner.args import ServerArgs
from tuner.measure.landscape import Landscape, RecordedBlock, RecordedLaunch, RecordedServer
from tuner.measure.records import LoadPoint
from tuner.search.replay_table import ReplayTable

TOKENS, REPEATS, BLOCKS = 1024.0, 4, 6
Env = Mapping[str, str]


class Hostile:
    """Chains with a constant acceptance, a step time of one's own making, and noise."""

    def __init__(
        self,
        slowness: Callable[[int, Env], float],
        *,
        accept: float = 0.75,
        noise: float = 0.01,
        is_counted: bool = True,
        crashes_from: int = 99,
    ) -> None:
        self.slowness, self.accept, self.noise = slowness, accept, noise
        self.is_counted, self.crashes_from = is_counted, crashes_from
        self.draw = np.random.default_rng(5)

    def table(self, variables: Mapping[str, tuple[str, ...]] | None = None) -> ReplayTable:
        names, choices = list(variables or {}), list((variables or {}).values())
        servers = [self._server(0, {})]
        for depth, values in product(range(1, 11), product(*choices)):
            servers.append(self._server(depth, dict(zip(names, values, strict=True))))
        landscape = Landscape("hostile", tuple(servers), "generated")
        return ReplayTable(landscape, LoadPoint(concurrency=1))

    def _server(self, depth: int, env: dict[str, str]) -> RecordedServer:
        flags = {"speculative-num-steps": depth} if depth else {}
        args = ServerArgs(flags, {name: value for name, value in env.items() if value != "unset"})
        if depth >= self.crashes_from:
            crash = RecordedLaunch({}, 30.0, "out_of_memory", "out of memory")
            return RecordedServer(args, (crash,) * REPEATS)
        launches = tuple(self._launch(depth, env) for _ in range(REPEATS))
        return RecordedServer(args, launches, is_baseline=not depth)

    def _launch(self, depth: int, env: Env) -> RecordedLaunch:
        length = 1.0 + sum(self.accept**i for i in range(1, depth + 1))
        steps = round(TOKENS / length)
        step_s = 0.01 * (self.slowness(depth, env) if depth else 1.0)
        slow = math.exp(self.draw.exponential(self.noise))
        counts = (steps * depth, TOKENS - steps, steps) if self.is_counted else (None, None, None)
        rows = [
            RecordedBlock(
                TOKENS, steps * step_s * slow * math.exp(self.draw.exponential(self.noise)), 8,
                *counts,
            )
            for _ in range(BLOCKS)
        ]  # fmt: skip
        return RecordedLaunch({"c1": tuple(rows)}, 60.0)


def shares(table: ReplayTable, seeds: int = 3) -> list[float]:
    """Recommended over the best, true ratios, by seed."""
    found = []
    for seed in range(seeds):
        outcome = search(table, "model", seed, budget=12)
        assert not outcome.is_worse
        found.append(outcome.confirmed.ratio / outcome.best)
    return found


def test_where_every_server_is_slower_the_baseline_is_kept() -> None:
    loud = Hostile(lambda depth, env: 3.0 + depth, noise=0.1)
    assert shares(loud.table()) == [1.0] * 3


def test_a_draft_cost_that_is_not_monotone_costs_little() -> None:
    slow = {3: 1.7, 4: 1.7, 5: 1.8}
    bumpy = Hostile(lambda depth, env: slow.get(depth, 1.1 + 0.06 * depth))
    assert min(shares(bumpy.table())) > 0.97


def test_clocks_alone_are_enough() -> None:
    blind = Hostile(lambda depth, env: 1.1 + 0.1 * depth, is_counted=False)
    assert min(shares(blind.table())) > 0.98


def test_a_crash_region_beside_the_optimum_costs_few_launches() -> None:
    edge = Hostile(lambda depth, env: 1.05 + 0.03 * depth, crashes_from=6)
    table = edge.table({"NCCL_ALGO": ("unset", "Ring", "Tree")})
    assert min(shares(table)) > 0.98


def test_variables_that_only_help_together_degrade_gracefully() -> None:
    def slowness(depth: int, env: Env) -> float:
        together = env["NCCL_PROTO"] == "LL" and env["NCCL_ALGO"] == "Tree"
        return (1.1 + 0.1 * depth) * (0.85 if together else 1.0)

    variables = {"NCCL_PROTO": ("unset", "LL", "Simple"), "NCCL_ALGO": ("unset", "Ring", "Tree")}
    found = shares(Hostile(slowness).table(variables), seeds=1)
    assert min(found) > 0.83


@pytest.mark.parametrize("noise", [0.002, 0.1])
def test_noise_tiny_or_huge_never_recommends_harm(noise: float) -> None:
    found = shares(Hostile(lambda depth, env: 1.1 + 0.1 * depth, noise=noise).table())
    assert min(found) > (0.99 if noise < 0.01 else 0.6)
