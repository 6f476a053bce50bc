"""The model: judges launched servers by their counters, covers the others, learns effects."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.model.observation import BASELINE, Designs, Observation
from tuner.model.speculation import SpeculationModel

SHARES = np.array([0.7, 0.48, 0.33, 0.22, 0.15, 0.1, 0.07, 0.05])
COST = np.array([0.01, 0.008, 0.001, 0.0004, 0.0006])
SCALES = (1.1, 1.0, 0.9, 1.05)


def chains(variable: bool = False) -> Designs:
    """Chains of depth 1 to 8, once or with a variable that is off and on."""
    depth = np.tile(np.arange(1.0, 9.0), 2 if variable else 1)
    setting = np.repeat([0.0, 1.0], 8) if variable else np.zeros(8)
    traits = ((depth - 1) / 7)[:, None]
    ones = np.ones(len(depth))
    return Designs(
        rows=np.column_stack([traits, setting]) if variable else traits,
        traits=traits, depth=depth, nodes=depth, branch=ones, passes=depth, silent=ones * 0,
    )  # fmt: skip


def counts_of(depth: int, scale: float) -> np.ndarray:  # type: ignore[type-arg]
    """Tokens, requests, steps, drafted, accepted of a block."""
    length = 1 + scale * SHARES[:depth].sum()
    steps = 500 / length
    return np.array([500.0, 4.0, steps, steps * depth, 500.0 - steps])


def launch(designs: Designs, server: int, seed: int, effect: float = 0.0) -> Observation:
    rng = np.random.default_rng(seed)
    rows, slow = [], rng.normal(0, 0.02)
    for scale in SCALES:
        if server == BASELINE:
            tokens, requests, steps, drafted, accepted = 500.0, 4.0, 500.0, 0.0, 0.0
            depth = 1.0
        else:
            depth = designs.depth[server]
            tokens, requests, steps, drafted, accepted = counts_of(int(depth), scale)
        drafts = drafted / depth
        seconds = float(np.dot(COST, [requests, steps, drafts, drafted, drafts * depth]))
        seconds *= math.exp(slow + rng.normal(0, 0.01) - effect)
        rows.append([tokens, seconds, requests, steps, drafted, accepted])
    return Observation(server, math.nan, np.array(rows), tuple(SHARES[: int(depth)]))


def truth(designs: Designs) -> np.ndarray:  # type: ignore[type-arg]
    base = float(np.dot(COST, [4 * 4, 2000, 0, 0, 0]))
    found = []
    for depth in designs.depth:
        total = sum(counts_of(int(depth), scale) for scale in SCALES)
        drafts = total[3] / depth
        seconds = np.dot(COST, [total[1], total[2], drafts, total[3], total[3]])
        found.append(math.log(base / seconds))
    return np.array(found)


def test_one_deep_run_predicts_every_chain() -> None:
    designs = chains()
    seen = [launch(designs, BASELINE, 0), launch(designs, 7, 1), launch(designs, 0, 2)]
    means, sds = SpeculationModel.fit(designs, seen, 0.02).predict(range(8))
    assert np.argmax(means) == np.argmax(truth(designs))
    assert means == pytest.approx(truth(designs), abs=0.08)
    assert np.all(np.abs(means - truth(designs)) < 3 * sds)


def test_launched_servers_are_judged_by_their_counters() -> None:
    designs = chains()
    seen = [launch(designs, BASELINE, 0)]
    seen += [launch(designs, server, server + 1) for server in range(8)]
    means, _ = SpeculationModel.fit(designs, seen, 0.02).predict(range(8))
    clocks = [math.log(seen[0].totals[1] / seen[server + 1].totals[1]) for server in range(8)]
    own = np.abs(means - truth(designs)).mean()
    assert own < np.abs(np.array(clocks) - truth(designs)).mean()


def test_a_variable_is_learned_as_a_factor() -> None:
    designs = chains(variable=True)
    seen = [launch(designs, BASELINE, 0), launch(designs, 7, 1), launch(designs, 1, 2)]
    seen += [launch(designs, 8 + server, server, effect=0.25) for server in (1, 4, 7)]
    means, _ = SpeculationModel.fit(designs, seen, 0.02).predict(range(16))
    lift = means[8:] - means[:8]
    assert lift.mean() == pytest.approx(0.25, abs=0.08)


def test_wall_clock_alone_is_interpolated() -> None:
    designs = chains()
    gains = truth(designs)
    seen = [Observation(server, gains[server]) for server in (0, 2, 5, 7)]
    means, sds = SpeculationModel.fit(designs, seen, 0.02).predict(range(8))
    assert means[[0, 2, 5, 7]] == pytest.approx(gains[[0, 2, 5, 7]], abs=0.05)
    assert sds[[1, 3, 4, 6]].min() > sds[[0, 2, 5, 7]].max() * 0.9


def test_without_any_launch_nothing_is_promised() -> None:
    means, sds = SpeculationModel.fit(chains(), [], 0.02).predict([0, 3])
    assert list(means) == [0.0, 0.0]
    assert np.all(sds > 0.1)
