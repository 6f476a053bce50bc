"""The count that `tuner check` must give for SGLang's best known space, and the rules it names."""

from __future__ import annotations

from tuner.config.engine import SglangConfig
from tuner.engines.base import EngineFacts
from tuner.engines.sglang.engine import SglangEngine
from tuner.search.candidates import Candidates, find_candidates, rule_counts
from tuner.space import Parameter, SearchSpace


def chains_and_trees(**args: str) -> Candidates:
    space = SearchSpace(
        (
            Parameter("steps", "int", tuple(range(1, 8)), flag="speculative-num-steps"),
            Parameter("topk", "categorical", (1, 2, 4, 8), flag="speculative-eagle-topk"),
            Parameter(
                "draft_tokens", "categorical", (4, 8, 16, 32),
                flag="speculative-num-draft-tokens",
            ),
        )
    )  # fmt: skip
    fixed = {"speculative-algorithm": "EAGLE3", "attention-backend": "fa3", **args}
    config = SglangConfig(kind="sglang", model="/m", draft_model="/d", args=fixed)
    engine = SglangEngine(config.model_copy(update={"executable": "/no/interpreter"}))
    return find_candidates(engine, space, EngineFacts())


def test_points_servers_and_the_two_rules() -> None:
    found = chains_and_trees()
    assert found.survey.counts() == {
        "points": 112, "distinct": 71, "infeasible": 20, "duplicates": 21,
    }  # fmt: skip
    counted = [(each.rule, each.kind, each.points) for each in rule_counts(found)]
    assert counted == [("tree-capacity", "infeasible", 20), ("topk-1-is-a-chain", "duplicate", 21)]


def test_a_backend_without_trees_leaves_the_chains() -> None:
    found = chains_and_trees(**{"attention-backend": "trtllm_mha"})
    assert found.survey.counts()["distinct"] == 7
