"""The replay engine: points become recorded servers, by full names, short names or endings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config.engine import ReplayConfig
from tuner.engines.base import EngineFacts
from tuner.engines.replay import ReplayEngine
from tuner.errors import UsageError
from tuner.space import Parameter, SearchSpace, survey

TABLE = """spec_type,size-n,size-m,NCCL_ALGO,output_tokens_per_s
none,,,,100
ngram-simple,4,8,,137
ngram-simple,4,8,Ring,140
ngram-simple,12,16,,105
"""
SPACE = SearchSpace(
    (
        Parameter("method", "categorical", ("ngram-simple",), flag="spec-type"),
        Parameter("n", "categorical", (4, 12), flag="spec-ngram-simple-size-n"),
        Parameter("size_m", "categorical", (8, 16), flag="m"),
        Parameter("algo", "categorical", ("unset", "Ring"), env="NCCL_ALGO"),
    )
)


@pytest.fixture
def engine(tmp_path: Path) -> ReplayEngine:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return ReplayEngine(ReplayConfig(kind="replay", landscape=str(path)))


def test_points_are_recorded_servers_or_infeasible(engine: ReplayEngine) -> None:
    facts = engine.parse_facts({})
    found = survey(
        SPACE,
        lambda params: engine.canonicalize(params, SPACE),
        lambda args: engine.violations(args, facts),
    )
    assert found.counts() == {"points": 8, "distinct": 3, "infeasible": 5, "duplicates": 0}
    assert found.servers[0][1].flags == {"spec-type": "ngram-simple", "size-n": 4, "size-m": 8}
    assert found.servers[1][1].env == {"NCCL_ALGO": "Ring"}
    assert found.infeasible[0][1] == ["not recorded in landscape table"]


def test_the_baseline_is_the_recorded_one(engine: ReplayEngine) -> None:
    args = engine.fixed_args()
    assert args.flags == {"spec-type": "none"}
    assert engine.without_speculation(args) == args
    assert (engine.is_speculative(args), engine.draft_source(args)) == (False, "none")
    point = {"method": "ngram-simple", "n": 4, "size_m": 8, "algo": "unset"}
    server = engine.canonicalize(point, SPACE)
    assert (engine.is_speculative(server), engine.draft_source(server)) == (True, "lookup")
    assert engine.complexity(server) > engine.complexity(args)


def test_its_files_are_read_back(engine: ReplayEngine) -> None:
    point = {"method": "ngram-simple", "n": 4, "size_m": 8, "algo": "Ring"}
    server = engine.canonicalize(point, SPACE)
    assert engine.parse_config(engine.render_config(server)) == server


def test_nothing_is_launched(engine: ReplayEngine) -> None:
    assert engine.fact_commands() == {}
    assert engine.preflight([engine.fixed_args()]) is None
    assert engine.parse_facts({}) == EngineFacts("table (recorded)")
    assert (engine.effective_path(), engine.snapshot_paths(), engine.flush_path()) == (
        None, (), None
    )  # fmt: skip


def test_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"engine\.landscape"):
        ReplayEngine(ReplayConfig(kind="replay", landscape=str(tmp_path / "missing.csv")))
