"""Choosing among the servers that remain: bounded, seeded, never twice, never illegal."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tuner.args import Params, ServerArgs
from tuner.config.study import SearchConfig
from tuner.errors import UsageError
from tuner.search.lattice import LatticeSampler, distribution, distributions
from tuner.search.sampling import (
    Ground,
    Situation,
    complete_point,
    make_suggester,
    require_packages,
    settled_digests,
    situation_of,
)
from tuner.search.strategies import (
    MAX_TOLD,
    Coordinates,
    Exhaustive,
    Grid,
    Random,
    Surrogate,
    observation,
    told,
)
from tuner.space import Parameter, SearchSpace, survey
from tuner.store.record import TrialRecord

SPACE = SearchSpace(
    (
        Parameter("steps", "int", (1, 2, 3, 4, 5, 6, 7), flag="steps"),
        Parameter("topk", "categorical", (1, 2, 4, 8), flag="topk"),
        Parameter("draft", "categorical", (4, 8, 16), flag="draft", when="topk > 1"),
        Parameter("algo", "categorical", ("unset", "Ring", "Tree"), env="ALGO"),
    ),
    ("steps + topk < 12",),
)


def canonical(params: Params) -> ServerArgs:
    return ServerArgs(dict(params))


def make_ground(sampler: Any = "tpe", launches: int = 20, space: SearchSpace = SPACE) -> Ground:
    found = survey(space, canonical, lambda args: [])
    return Ground(space, found, SearchConfig(sampler=sampler, seed=3), launches=launches)


def speed(params: Params) -> float:
    """Made up, with its only maximum at steps 5, topk 2, Ring."""
    far = abs(int(params["steps"]) - 5) / 6
    far += abs(math.log2(int(params.get("topk", 2))) - 1) / 3
    return 1.4 * math.exp(-far) * (1.1 if params.get("algo") == "Ring" else 1.0)


def record(number: int, params: Params, **fields: Any) -> TrialRecord:
    base = {"state": "complete", "value": speed(params), "vs_baseline": speed(params)}
    digest = canonical(params).digest
    return TrialRecord(
        **{**base, "number": number, "params": dict(params), "digest": digest, **fields}
    )


def search(ground: Ground, launches: int) -> list[int]:
    """The servers chosen, one after the other."""
    suggester, records, chosen = make_suggester(ground), [], []
    for number in range(launches):
        situation = situation_of(ground, records, set(), number)
        if situation is None:
            break
        proposal = suggester.propose(situation)
        assert proposal is not None
        assert proposal.index in situation.remaining
        chosen.append(proposal.index)
        records.append(record(number, ground.survey.servers[proposal.index][0]))
    return chosen


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_no_server_is_chosen_twice_and_all_are_in_the_end(sampler: str) -> None:
    small = SearchSpace(SPACE.parameters[:2])
    ground = make_ground(sampler, launches=4, space=small)
    chosen = search(ground, 99)
    assert sorted(chosen) == list(range(28))
    if sampler == "grid":
        assert chosen == sorted(chosen)


def test_the_model_sampler_is_made_by_its_name() -> None:
    from tuner.search.model_sampler import ModelSuggester

    assert isinstance(make_suggester(make_ground("model")), ModelSuggester)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_choices_repeat_with_the_seed_and_differ_without(sampler: str) -> None:
    ground = make_ground(sampler)
    assert search(ground, 12) == search(ground, 12)
    other = SearchConfig(sampler=sampler, seed=4)
    assert search(ground, 12) != search(Ground(SPACE, ground.survey, other, launches=20), 12)


def test_a_resumed_search_goes_on_instead_of_starting_again() -> None:
    ground = make_ground("random")
    whole = search(ground, 8)
    records = [record(n, ground.survey.servers[i][0]) for n, i in enumerate(whole[:4])]
    situation = situation_of(ground, records, set(), 4)
    assert situation is not None
    proposal = make_suggester(ground).propose(situation)
    assert proposal is not None
    assert proposal.index == whole[4]


def test_tpe_finds_better_servers_than_chance() -> None:
    found = {}
    for sampler in ("tpe", "random"):
        best = []
        for seed in range(4):
            ground = make_ground(sampler)
            config = SearchConfig(sampler=sampler, seed=1000 * seed)
            ground = Ground(SPACE, ground.survey, config, launches=20)
            best.append(max(speed(ground.survey.servers[i][0]) for i in search(ground, 20)))
        found[sampler] = sum(best) / len(best)
    assert found["tpe"] > found["random"]
    assert found["tpe"] > 1.35


def test_a_space_within_the_budget_is_covered_spread_out() -> None:
    ground = make_ground("tpe", launches=29, space=SearchSpace(SPACE.parameters[:2]))
    assert isinstance(make_suggester(ground), Exhaustive)
    chosen = search(ground, 4)
    known = Coordinates(ground)
    apart = min(known.distance(known.of(a), known.of(b)) for a in chosen for b in chosen if a != b)
    assert apart >= 0.5  # corners first
    assert isinstance(make_suggester(make_ground("tpe", launches=28)), Surrogate)
    assert isinstance(make_suggester(make_ground("random")), Random)
    assert isinstance(make_suggester(make_ground("grid", launches=999)), Grid)


def test_the_first_choices_of_a_surrogate_are_spread_out() -> None:
    ground = make_ground("tpe")
    chosen = [ground.survey.servers[i][0] for i in search(ground, 5)]
    assert {params["algo"] for params in chosen} == {"unset", "Ring", "Tree"}
    steps = [int(params["steps"]) for params in chosen]
    assert max(steps) - min(steps) >= 5


def test_servers_that_failed_or_run_elsewhere_push_the_surrogate_away() -> None:
    ground = make_ground("tpe")
    servers = ground.survey.servers
    failed = [
        record(n, p, state="failed", failure="out_of_memory", value=None, vs_baseline=None)
        for n, (p, _) in enumerate(servers)
        if p["topk"] == 8
    ]
    fine = [record(99, p) for p, _ in servers if p["topk"] == 2][:12]
    busy = {args.digest for p, args in servers if p["steps"] == 5}
    situation = situation_of(ground, [*failed, *fine], busy, 40)
    assert situation is not None
    assert len(situation.running) == len([1 for p, _ in servers if p["steps"] == 5])
    proposal = make_suggester(ground).propose(situation)
    assert proposal is not None
    assert servers[proposal.index][0]["topk"] != 8
    assert servers[proposal.index][0]["steps"] != 5


def test_a_surrogate_learns_from_the_best_and_the_newest_alone() -> None:
    params = GROUND.survey.servers[0][0]
    records = [record(n, params, vs_baseline=1 + (n % 100) / 100) for n in range(500)]
    kept = told(records)
    assert len(kept) == MAX_TOLD
    assert [r.number for r in kept[-60:]] == list(range(440, 500))
    assert min(r.vs_baseline or 0 for r in kept[:60]) > 1.8
    assert [r.number for r in kept] == sorted(r.number for r in kept)
    assert told(records[:90]) == records[:90]


# ---- what remains -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "settled"),
    [
        ({"state": "complete"}, True),
        ({"state": "pruned"}, True),
        ({"state": "reused"}, True),
        ({"state": "infeasible"}, True),
        ({"state": "failed", "failure": "out_of_memory"}, True),
        ({"state": "failed", "failure": "interrupted"}, False),
        ({"state": "failed", "failure": "unexpected"}, False),
        ({"state": "failed", "failure": "a_kind_of_version_9"}, False),
    ],
)
def test_only_a_standing_outcome_settles_a_server(fields: dict[str, str], settled: bool) -> None:
    one = TrialRecord(number=0, digest="d", **fields)
    assert (settled_digests([one]) == {"d"}) == settled
    assert settled_digests([one, one]) == {"d"}  # the host's faults are bounded too


def test_nothing_remains_when_all_is_settled_or_busy() -> None:
    ground = make_ground(space=SearchSpace(SPACE.parameters[:1]))
    digests = [args.digest for _, args in ground.survey.servers]
    records = [record(n, p) for n, (p, _) in enumerate(ground.survey.servers[:3])]
    assert situation_of(ground, records, set(digests[3:]), 7) is None
    situation = situation_of(ground, records, set(digests[3:6]), 7)
    assert situation == Situation(records, [6], [3, 4, 5], 3 + 7)


@pytest.mark.parametrize(
    ("partial", "expected"),
    [
        ({"steps": 3, "topk": 1}, {"steps": 3, "topk": 1, "algo": "unset"}),
        ({"topk": 8}, {"steps": 1, "topk": 8, "draft": 4, "algo": "unset"}),
        ({"steps": 9}, None),
        ({"colour": 1}, None),
        ({}, {"steps": 1, "topk": 1, "algo": "unset"}),
        (
            {"steps": 7, "topk": 8, "draft": 4},
            {"steps": 7, "topk": 8, "draft": 4, "algo": "unset"},
        ),
    ],
)
def test_a_partial_point_is_completed(partial: Params, expected: Params | None) -> None:
    assert complete_point(make_ground(), partial) == expected


def test_a_missing_package_is_said_before_the_first_launch() -> None:
    with pytest.raises(UsageError, match=r"search\.sampler gp: must have no_such_package") as got:
        require_packages("search.sampler gp", "json", "no_such_package")
    assert "pip install no_such_package" in got.value.hint


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_gp_without_torch_is_refused() -> None:
    with pytest.raises(UsageError, match="torch"):
        make_suggester(make_ground("gp"))


@pytest.mark.skipif(
    None in map(importlib.util.find_spec, ("torch", "scipy")), reason="needs torch and scipy"
)
def test_gp_chooses_among_what_remains() -> None:
    assert len(set(search(make_ground("gp"), 9))) == 9


# ---- coordinates ------------------------------------------------------------------------------

points = st.sampled_from(list(SPACE.points()))


@given(points, points, points)
def test_distance_is_a_distance(a: Params, b: Params, c: Params) -> None:
    known = Coordinates(GROUND)
    x, y, z = known.at(a), known.at(b), known.at(c)
    assert known.distance(x, x) == 0
    assert known.distance(x, y) == known.distance(y, x)
    assert (known.distance(x, y) == 0) == (x == y)
    assert known.distance(x, z) <= known.distance(x, y) + known.distance(y, z) + 1e-9


GROUND = make_ground()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"vs_baseline": 1.5}, math.log(1.5)),
        ({"state": "pruned", "vs_baseline": 0.8}, math.log(0.8)),
        ({"state": "failed"}, None),
        ({"state": "reused"}, None),
        ({"vs_baseline": None}, None),
        ({"vs_baseline": math.nan}, None),
        ({"vs_baseline": 0.0}, None),
    ],
)
def test_what_a_surrogate_is_told(fields: dict[str, Any], expected: float | None) -> None:
    assert observation(TrialRecord(**{"number": 1, "state": "complete", **fields})) == expected


# ---- Optuna's view ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        (Parameter("a", "int", (1, 2, 3)), IntDistribution(1, 3)),
        (Parameter("a", "int", (2, 4, 6)), IntDistribution(2, 6, step=2)),
        (Parameter("a", "int", (1, 4, 16), log=4), IntDistribution(1, 16, log=True)),
        (Parameter("a", "int", (0, 1, 2, 4), log=2), IntDistribution(0, 4)),
        (Parameter("a", "int", (5,)), IntDistribution(5, 5)),
        (Parameter("a", "float", (0.0, 0.1, 0.2)), FloatDistribution(0.0, 0.2)),
        (Parameter("a", "float", (0.1, 1.0), log=10), FloatDistribution(0.1, 1.0, log=True)),
        (Parameter("a", "categorical", ("x", 1)), CategoricalDistribution(("x", 1))),
    ],
)
def test_distributions_hold_every_value(parameter: Parameter, expected: Any) -> None:
    found = distribution(parameter)
    assert found == expected
    for value in parameter.values:
        assert found._contains(found.to_internal_repr(value))


def test_the_sampler_works_in_plain_optuna_too() -> None:
    study = optuna.create_study(sampler=LatticeSampler(GROUND))
    known = distributions(SPACE)
    legal = [dict(params) for params, _ in GROUND.survey.servers]
    for _ in range(10):
        trial = study.ask()
        topk = trial.suggest_categorical("topk", known["topk"].choices)
        trial.suggest_int("steps", 1, 7)
        if topk > 1:
            trial.suggest_categorical("draft", known["draft"].choices)
        trial.suggest_categorical("algo", known["algo"].choices)
        study.tell(trial, 1.0)
    points = [trial.params for trial in study.trials]
    assert all(point in legal for point in points)
    assert len({tuple(sorted(point.items())) for point in points}) == 10


def test_an_unknown_parameter_is_drawn_at_random(make_asked: Callable[..., Any]) -> None:
    study = optuna.create_study(sampler=LatticeSampler(GROUND))
    assert 0 <= study.ask().suggest_float("other", 0, 1) <= 1
