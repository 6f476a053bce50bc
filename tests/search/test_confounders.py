"""What differs between a trial and its baseline besides drafting."""

from __future__ import annotations

from tuner.search.confounders import confounders

NAMES = ("attention-backend", "page-size", "cuda-graph-config")


def test_only_named_values_that_both_report_and_that_differ_are_told() -> None:
    baseline = {"attention-backend": "fa3", "page-size": 1, "other": 1}
    trial = {"attention-backend": "flashinfer", "page-size": 1.0, "other": 2}
    (found,) = confounders(NAMES, baseline, trial)
    assert (found.name, found.requested, found.effective) == (
        "attention-backend", "fa3", "flashinfer",
    )  # fmt: skip
    assert found.is_confounder
    assert found.message.startswith("attention-backend is fa3 in the baseline and flashinfer here")
    assert confounders(NAMES, baseline, {}) == []
    assert confounders((), baseline, trial) == []


def test_long_values_are_shortened_and_absent_ones_named() -> None:
    (found,) = confounders(
        NAMES, {"cuda-graph-config": None}, {"cuda-graph-config": {"a": "x" * 99}}
    )
    assert found.requested == "unset"
    assert len(found.effective) == 60
