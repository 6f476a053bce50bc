"""What flags of every engine mean for drafting."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.args import FlagValue, ServerArgs
from tuner.config.study import SearchConfig
from tuner.measure.records import Acceptance, Block, LoadPoint, RequestRecord
from tuner.model.observation import ACCEPTED, DRAFTED, SECONDS, STEPS, TOKENS
from tuner.search.model_data import COLUMNS, block_counts, failed_servers, observations_of
from tuner.search.model_servers import designs_of, is_silent, roles_of
from tuner.search.sampling import Ground
from tuner.space import Parameter, SearchSpace, survey
from tuner.store.record import LoadPointRecord, TrialRecord

CASES: list[tuple[dict[str, FlagValue], tuple[object, ...]]] = [
    ({"speculative-algorithm": "EAGLE3", "speculative-num-steps": 5, "speculative-eagle-topk": 1,
      "speculative-num-draft-tokens": 6}, ("EAGLE3", 5, 5, 1, 5, False)),
    ({"speculative-num-steps": 3, "speculative-eagle-topk": 4,
      "speculative-num-draft-tokens": 16}, ("", 3, 15, 4, 3, False)),
    ({"speculative-num-steps": 7, "speculative-eagle-topk": 8,
      "speculative-num-draft-tokens": 4}, ("", 3, 3, 1, 7, False)),
    ({"speculative-config": {"method": "ngram", "num_speculative_tokens": 6,
                             "prompt_lookup_max": 4}}, ("ngram", 6, 6, 1, 6, True)),
    ({"spec-type": "ngram-simple", "spec-ngram-simple-size-n": 4,
      "spec-ngram-simple-size-m": 8}, ("ngram-simple", 8, 8, 1, 8, True)),
    ({"spec-type": "draft-simple", "spec-draft-n-max": 6}, ("draft-simple", 6, 6, 1, 6, False)),
    ({"unknown": "x"}, ("", 0, 0, 1, 0, False)),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "expected"), CASES)
def test_roles(flags: dict[str, FlagValue], expected: tuple[object, ...]) -> None:
    roles = roles_of(ServerArgs(flags))
    found = (roles.method, roles.depth, roles.nodes, roles.branch, roles.passes, roles.is_lookup)
    assert found == expected


def test_a_simple_lookup_that_matches_more_than_it_drafts_is_silent() -> None:
    flags: dict[str, FlagValue] = {"spec-type": "ngram-simple", "size-n": 12, "size-m": 8}
    assert is_silent(roles_of(ServerArgs(flags)))
    assert not is_silent(roles_of(ServerArgs({**flags, "size-m": 16})))
    assert not is_silent(roles_of(ServerArgs({**flags, "spec-type": "ngram-map-k"})))


SPACE = SearchSpace(
    (
        Parameter("depth", "int", (2, 4, 8), flag="spec-draft-n-max"),
        Parameter("p_min", "float", (0.0, 0.5), flag="spec-draft-p-min"),
        Parameter("algo", "categorical", ("unset", "Ring", "Tree"), env="NCCL_ALGO"),
    )
)


def ground() -> Ground:
    def args(params: object) -> ServerArgs:
        point = dict(params)  # type: ignore[call-overload]
        flags = {"spec-draft-n-max": point["depth"], "spec-draft-p-min": point["p_min"]}
        return ServerArgs(flags, {"NCCL_ALGO": point["algo"]})

    return Ground(SPACE, survey(SPACE, args, lambda args: []), SearchConfig())


def test_acceptance_does_not_depend_on_the_environment() -> None:
    designs, _ = designs_of(ground())
    assert designs.count == 18
    assert designs.traits.shape == (18, 2 + 1)  # depth, passes of the draft, p_min
    assert designs.rows.shape == (18, 3 + 3)
    assert len(np.unique(designs.traits, axis=0)) == 6
    assert set(designs.depth) == {2.0, 4.0, 8.0}


def block(tokens: int = 100) -> Block:
    record = RequestRecord(
        prompt_id="p", category="chat", scheduled_s=0.0, sent_s=0.0, first_s=0.1, last_s=2.0,
        end_s=2.0, chunk_s=(0.1, 2.0), prompt_tokens=5, output_tokens=tokens, cached_tokens=0,
        finish_reason="stop",
    )  # fmt: skip
    return Block(0, LoadPoint(concurrency=1), 0.0, 2.0, (record,))


def record(
    number: int, digest: str, counts: dict[str, list[float]], **more: object
) -> TrialRecord:
    point = LoadPointRecord(load="c1", block_counts=counts)
    fields = {"state": "complete", "vs_baseline": 1.2, "load_points": [point], **more}
    return TrialRecord(number=number, digest=digest, **fields)  # type: ignore[arg-type]


def test_counts_of_a_block() -> None:
    counted = Acceptance(3.0, 0.5, (), steps=20, drafted=120, accepted=60, basis="timings")
    found = block_counts(block(), counted)
    assert [found[name] for name in COLUMNS] == [100.0, 2.0, 1.0, 20.0, 120.0, 60.0]
    assert np.isnan(block_counts(block(), None)["steps"])


def test_passes_of_the_target_are_tokens_less_accepted() -> None:
    made, (servers, digests) = ground(), ({}, [])
    for index, (_, args) in enumerate(made.survey.servers):
        digests.append(args.digest)
        servers[args.digest] = index
    nan = float("nan")
    counts = {"tokens": [100.0], "seconds": [2.0], "requests": [1.0], "steps": [20.0],
              "drafted": [nan], "accepted": [60.0]}  # fmt: skip
    nodes = designs_of(made)[0].nodes
    seen = observations_of([record(1, digests[0], counts)], servers, made, nodes)
    assert seen[0].is_counted
    totals = seen[0].totals
    assert (totals[TOKENS], totals[SECONDS], totals[ACCEPTED]) == (100.0, 2.0, 60.0)
    assert totals[STEPS] == 40.0
    assert totals[DRAFTED] == 20 * nodes[0]
    failed = record(2, digests[3], {}, state="failed", failure="launch_crash")
    assert failed_servers([failed], servers) == [3]
    assert observations_of([failed], servers, made, nodes) == []


def test_a_drift_of_the_machine_is_taken_out_of_the_seconds() -> None:
    made = ground()
    digest = made.survey.servers[0][1].digest
    counts = {"tokens": [100.0, 90.0], "seconds": [2.0, 1.0], "requests": [1.0] * 2,
              "steps": [20.0] * 2, "drafted": [60.0] * 2, "accepted": [40.0] * 2}  # fmt: skip
    nodes = designs_of(made)[0].nodes
    steady, faster = (
        observations_of([record(1, digest, counts, drift=drift)], {digest: 0}, made, nodes)[0]
        for drift in (None, 0.25)
    )
    assert steady.blocks[:, SECONDS].tolist() == [2.0, 1.0]
    assert faster.blocks[:, SECONDS].tolist() == [2.5, 1.25]
    assert faster.blocks[:, :SECONDS].tolist() == steady.blocks[:, :SECONDS].tolist()
