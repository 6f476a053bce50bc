"""How each engine is told what to accept."""

from __future__ import annotations

from tuner.args import ServerArgs
from tuner.engines.synthetic import with_acceptance


def test_llamacpp_takes_a_length_in_place_of_rates() -> None:
    found = with_acceptance("llamacpp", ServerArgs({"spec-synth-rates": "0.5,0.2", "n": 1}), 2.1)
    assert found == ServerArgs({"n": 1, "spec-synth-len": 2.1})


def test_sglang_takes_a_variable() -> None:
    found = with_acceptance("sglang", ServerArgs({"tp-size": 8}, {"A": "b"}), 3.35)
    assert found == ServerArgs({"tp-size": 8}, {"A": "b", "SGLANG_SIMULATE_ACC_LEN": "3.35"})


def test_vllm_takes_a_rejection_method() -> None:
    args = ServerArgs({"speculative-config.synthetic_acceptance_rates": [0.5], "m": "x"})
    assert with_acceptance("vllm", args, 1.5) == ServerArgs(
        {
            "m": "x",
            "speculative-config.rejection_sample_method": "synthetic",
            "speculative-config.synthetic_acceptance_length": 1.5,
        }
    )


def test_other_engines_cannot() -> None:
    assert with_acceptance("fake", ServerArgs(), 2.0) is None
