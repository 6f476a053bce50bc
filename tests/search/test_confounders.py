"""What differs between a trial and its baseline besides drafting."""

from __future__ import annotations

from tuner.measure.records import Block, LoadPoint
from tuner.search.confounders import confounders, gpu_confounders

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


def sampled(
    clock: float, throttled: dict[str, float] | None = None, samples: int = 4, index: int = 0
) -> Block:
    gpu = {
        "index": index, "samples": samples, "sm_clock_mhz_mean": clock,
        "throttled": throttled or {},
    }  # fmt: skip
    return Block(0, LoadPoint(concurrency=1), 0.0, 1.0, (), gpus=(gpu,))


def test_gpus_that_did_the_same_are_no_confounder() -> None:
    same = [sampled(1980), sampled(1960)]
    assert gpu_confounders(same, same) == []
    assert gpu_confounders(same, []) == []
    assert gpu_confounders([], same) == []
    assert gpu_confounders([Block(0, LoadPoint(concurrency=1), 0.0, 1.0, ())], same) == []


def test_another_clock_is_one() -> None:
    assert gpu_confounders([sampled(1980)], [sampled(1500)]) == [
        "GPU 0 ran at 1500 MHz, in the baseline at 1980 MHz: more than speculation differs; lock "
        "the clocks (nvidia-smi -lgc) or cool the machine"
    ]
    assert gpu_confounders([sampled(1980)], [sampled(1950)]) == []
    assert gpu_confounders([sampled(0)], [sampled(1950)]) == [], "not reported"
    assert gpu_confounders([sampled(1980, index=1)], [sampled(1500)]) == []


def test_throttling_counts_where_the_baseline_had_less() -> None:
    cool = [sampled(1980, {"power cap": 0.5})]
    hot = [sampled(1980, {"power cap": 1.0}, samples=3), sampled(1980, samples=1)]
    assert gpu_confounders(cool, hot) == [
        "GPU 0 was held back by its power cap in 75% of the samples, in the baseline in 50%: more "
        "than speculation differs"
    ]
    assert gpu_confounders(hot, cool) == []
