"""Owns how each engine is told what to accept: the real server with another acceptance length.

Drafting and verifying really run, only the outcome is decided by lot: such a server shows what a
better draft would give, and its answers are worthless.
"""

from __future__ import annotations

from tuner.args import ServerArgs

LENGTH = "spec-synth-len"
RATES = "spec-synth-rates"
SGLANG_LENGTH = "SGLANG_SIMULATE_ACC_LEN"
VLLM = "speculative-config."


def with_acceptance(kind: str, args: ServerArgs, length: float) -> ServerArgs | None:
    """The same server with a mean acceptance length (bonus token counted); None where the
    engine has no such setting."""
    rounded = round(length, 3)
    if kind == "llamacpp":
        return args.replace({RATES: None, LENGTH: rounded})
    if kind == "sglang":
        return ServerArgs(args.flags, {**args.env, SGLANG_LENGTH: f"{rounded:g}"})
    if kind == "vllm":
        return args.replace(
            {
                f"{VLLM}synthetic_acceptance_rates": None,
                f"{VLLM}rejection_sample_method": "synthetic",
                f"{VLLM}synthetic_acceptance_length": rounded,
            }
        )
    return None
