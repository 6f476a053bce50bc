"""Parameters that changed nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuner.args import ServerArgs
from tuner.insight.inert import find_inert, without_inert
from tuner.store.record import ArgsRecord, TrialRecord

Make = Callable[..., Any]


def trial(
    number: int, value: float, algo: str | None, steps: int = 3, **effective: Any
) -> TrialRecord:
    return TrialRecord(
        number=number,
        state="complete",
        params={"steps": steps, "nccl_algo": algo or "unset"},
        requested_args=ArgsRecord(flags={"num-steps": steps}, env={"NCCL_ALGO": algo}),
        effective_args={"num-steps": steps, **effective},
        value=value,
    )


def test_a_variable_that_changes_neither_server_nor_speed() -> None:
    found = find_inert([trial(1, 100, "Ring"), trial(2, 100.4, "Tree"), trial(3, 120, "Ring", 4)])
    assert [(each.name, each.settings, each.pairs) for each in found] == [
        ("nccl_algo", ("NCCL_ALGO",), 1)
    ]
    assert "nccl_algo is inert here: 1 pair of trials" in found[0].sentence


def test_a_difference_in_speed_is_an_effect() -> None:
    trials = [trial(1, 100, "Ring"), trial(2, 104, "Tree")]
    assert find_inert(trials) == []
    assert len(find_inert(trials, noise=0.05)) == 1


def test_a_difference_in_the_reported_server_is_an_effect() -> None:
    assert find_inert([trial(1, 100, "Ring", page=1), trial(2, 100, "Tree", page=64)]) == []


def test_one_pair_that_differs_is_enough() -> None:
    trials = [trial(1, 100, "Ring"), trial(2, 100, "Tree"), trial(3, 90, "CollNet")]
    assert find_inert(trials) == []


def test_pairs_that_differ_in_two_say_nothing() -> None:
    assert find_inert([trial(1, 100, "Ring", 3), trial(2, 100, "Tree", 4)]) == []


def test_what_is_inert_is_left_out_on_the_evidence_of_several_pairs() -> None:
    trials = [trial(n, 100, algo) for n, algo in enumerate(("Ring", "Tree", None))]
    args = ServerArgs({"num-steps": 3}, {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"})
    left, notes = without_inert(args, find_inert(trials))
    assert left == ServerArgs({"num-steps": 3}, {"NCCL_PROTO": "LL"})
    assert notes[0].startswith("left out NCCL_ALGO=Tree: nccl_algo is inert here: 3 pairs")
    assert without_inert(args, find_inert(trials[:2])) == (args, [])


def test_what_was_never_measured_without_the_variable_stays() -> None:
    """Ring, Tree and PAT are alike: NCCL's own choice may be slower than all of them."""
    trials = [trial(n, 100, algo) for n, algo in enumerate(("Ring", "Tree", "PAT"))]
    args = ServerArgs({"num-steps": 3}, {"NCCL_ALGO": "Tree"})
    (found,) = find_inert(trials)
    assert (found.pairs, found.without) == (3, frozenset())
    assert without_inert(args, [found]) == (args, [])
