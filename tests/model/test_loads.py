"""Several loads on generated tables: few launches predict every server at every load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tuner.model.gaussian import Array
from tuner.model.loads import LoadedLaunch, SharedLoads
from tuner.model.observation import BASELINE, Designs

DEPTHS = np.arange(1.0, 9.0)
RATES = np.array([0.8, 0.75, 0.7, 0.68, 0.66, 0.65, 0.64, 0.63])
TOKENS, REQUESTS = 6400.0, 32.0

# The generated machine, in seconds: one iteration, a pass of the draft, a request's step, a
# verified token, a request's prefill.
ITERATION, PASS, STEP, VERIFIED, PREFILL = 0.020, 0.0015, 0.0004, 0.0003, 0.03


def designs() -> Designs:
    ones = np.ones(len(DEPTHS))
    traits = (np.log2(DEPTHS) / 3.0)[:, None]
    return Designs(traits, traits, DEPTHS, DEPTHS, ones, DEPTHS, ones * 0.0)


def counts(server: int) -> tuple[float, float, float]:
    """Steps, drafts and accepted tokens of a true server."""
    if server == BASELINE:
        return TOKENS, 0.0, 0.0
    accepted = float(np.cumprod(RATES)[: int(DEPTHS[server])].sum())
    drafts = TOKENS / (1.0 + accepted)
    return drafts, drafts, TOKENS - drafts


def seconds(server: int, load: float) -> float:
    steps, drafts, _ = counts(server)
    depth = 0.0 if server == BASELINE else float(DEPTHS[server])
    iteration = steps * ITERATION + drafts * depth * PASS
    return iteration / load + steps * STEP + drafts * depth * VERIFIED + REQUESTS * PREFILL


def truth(load: float) -> Array:
    return np.array([
        np.log(seconds(BASELINE, load) / seconds(server, load)) for server in range(len(DEPTHS))
    ])  # fmt: skip


def launched(server: int, loads: tuple[float, ...], seed: int, noise: float) -> LoadedLaunch:
    draws = np.random.default_rng(seed)
    steps, drafts, accepted = counts(server)
    depth = 0.0 if server == BASELINE else float(DEPTHS[server])
    shift = draws.normal(0.0, noise)
    blocks = {}
    for load in loads:
        row = np.array([TOKENS, seconds(server, load), REQUESTS, steps, drafts * depth, accepted])
        table = np.repeat(row[None, :] / 4.0, 4, axis=0)
        table[:, 1] *= np.exp(shift + draws.normal(0.0, noise / 2.0, 4))
        blocks[load] = table
    shares = np.cumprod(RATES)[: int(depth)] if depth else ()
    return LoadedLaunch(server, blocks, tuple(float(share) for share in shares))


def fitted(launches: list[LoadedLaunch], noise: float = 0.01) -> SharedLoads:
    found = SharedLoads.fit(designs(), launches, noise)
    assert found is not None
    return found


FEW = [(BASELINE, (1.0, 16.0)), (BASELINE, (1.0, 16.0)), (7, (1.0, 16.0)), (1, (1.0, 16.0))]


def few(seed: int, noise: float = 0.01) -> list[LoadedLaunch]:
    return [launched(server, loads, 10 * seed + i, noise) for i, (server, loads) in enumerate(FEW)]


@pytest.mark.parametrize("load", [1.0, 16.0])
def test_two_servers_predict_all_depths_at_the_measured_loads(load: float) -> None:
    means, _ = fitted(few(1, 0.003), 0.003).predict(load)
    assert np.abs(means - truth(load)).max() < 0.03


def test_two_loads_tell_one_between_and_where_speculation_stops_paying() -> None:
    found = fitted(few(2, 0.003), 0.003)
    between, _ = found.predict(4.0)
    assert np.abs(between - truth(4.0)).max() < 0.04
    for load in (1.0, 16.0):
        assert abs(int(np.argmax(found.predict(load)[0])) - int(np.argmax(truth(load)))) <= 1
    beyond, _ = found.predict(128.0)
    assert truth(128.0)[7] < 0 < truth(1.0)[7]
    assert beyond[7] < 0 < found.predict(1.0)[0][7]


def test_acceptance_that_was_measured_at_one_load_holds_at_all() -> None:
    loads = [launched(BASELINE, (1.0, 16.0), 1, 0.003), launched(1, (1.0, 16.0), 2, 0.003)]
    deep = launched(7, (1.0,), 3, 0.003)
    found, blind = fitted([*loads, deep], 0.003), fitted(loads, 0.003)
    means, sds = found.predict(16.0)
    assert np.abs(means - truth(16.0)).max() < 0.08
    assert sds[7] < blind.predict(16.0)[1][7]
    steps = [counts(server)[0] / TOKENS for server in range(len(DEPTHS))]
    told = found.drafting.counts(designs())[:, 0]
    guessed = blind.drafting.counts(designs())[:, 0]
    assert np.abs(told / steps - 1.0).max() < 0.02
    assert np.abs(guessed / steps - 1.0).max() > 0.04


def test_the_uncertainty_covers_what_was_not_measured() -> None:
    covered = total = 0
    for seed in range(12):
        found = fitted(few(seed, 0.02), 0.02)
        for load in (1.0, 4.0, 16.0):
            means, sds = found.predict(load)
            covered += int((np.abs(means - truth(load)) < 2.0 * sds).sum())
            total += len(means)
    assert covered / total > 0.9


def test_what_the_clock_does_not_know_is_learned_over_servers_and_loads() -> None:
    def slowed(launch: LoadedLaunch) -> LoadedLaunch:
        factor = np.array([1.0, 1.15, 1.0, 1.0, 1.0, 1.0])
        is_slow = launch.server >= 4
        return replace(launch, blocks={
            load: table * factor if is_slow and load > 1.0 else table
            for load, table in launch.blocks.items()
        })  # fmt: skip

    servers = [BASELINE, BASELINE, 7, 1, 5, 3, 6, 0]
    launches = [slowed(launched(s, (1.0, 16.0), i, 0.003)) for i, s in enumerate(servers)]
    found = fitted(launches, 0.003)
    high, low = found.predict(16.0)[0], found.predict(1.0)[0]
    assert high[4] == pytest.approx(truth(16.0)[4] - np.log(1.15), abs=0.06)
    assert low[4] == pytest.approx(truth(1.0)[4], abs=0.06)


def test_loads_may_differ_from_launch_to_launch() -> None:
    launches = [
        launched(BASELINE, (1.0, 8.0), 1, 0.003),
        launched(7, (1.0,), 2, 0.003),
        launched(2, (8.0,), 3, 0.003),
    ]
    found = fitted(launches, 0.003)
    for load in (1.0, 8.0):
        assert np.abs(found.predict(load)[0] - truth(load)).max() < 0.15


def test_without_a_counted_baseline_nothing_is_predicted() -> None:
    assert SharedLoads.fit(designs(), [launched(7, (1.0,), 1, 0.01)], 0.01) is None
    uncounted = launched(BASELINE, (1.0,), 1, 0.01)
    unknown = replace(uncounted, blocks={1.0: np.full((2, 6), np.nan)})
    assert SharedLoads.fit(designs(), [unknown], 0.01) is None


def test_before_any_speculative_launch_every_server_is_uncertain() -> None:
    _, sds = fitted([launched(BASELINE, (1.0, 16.0), 1, 0.01)]).predict(1.0)
    assert sds.min() > 0.05
