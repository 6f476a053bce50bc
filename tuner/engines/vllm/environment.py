"""Owns vLLM's environment: NCCL variables that would do nothing or are overwritten, and which
all-reduce the running server uses instead of NCCL. What NCCL accepts is in `engines.nccl`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.args import UNSET, ServerArgs
from tuner.config.environment import is_nccl
from tuner.engines.base import Drift
from tuner.engines.nccl import check_value
from tuner.engines.vllm.case import Case, Rule

_USES_NCCL = frozenset({"NCCL_SYMM_MEM", "PYNCCL"})
_BATCH_INVARIANT = frozenset(
    {"NCCL_LAUNCH_MODE", "NCCL_COLLNET_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_P2P_NET_DISABLE",
     "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_PROTO", "NCCL_ALGO", "NCCL_NTHREADS",
     "NCCL_SOCKET_NTHREADS"}
)  # fmt: skip
"""What VLLM_BATCH_INVARIANT=1 sets itself (model_executor/determinism, 0.32)."""


def env_text(value: Any) -> str | None:
    """A parameter's value as a variable's text; the choice `unset` removes an inherited one."""
    if value == UNSET:
        return None
    return str(int(value)) if isinstance(value, bool) else str(value)


def collective_drifts(args: ServerArgs, effective: Mapping[str, Any]) -> Iterator[Drift]:
    """Where NCCL variables are asked for and small all-reduces do not go through NCCL.

    vLLM logs the backends in dispatch order; a backend takes the sizes it can, and NCCL gets the
    rest. Verification reduces small messages, so a first backend other than NCCL takes them.
    """
    asked = _nccl_names(args.env)
    backends = effective.get("all-reduce-backends")
    if not asked or not isinstance(backends, list) or not backends:
        return
    first = str(backends[0])
    if first in _USES_NCCL:
        return
    text = (
        f"{first} reduces small messages before NCCL sees them, so {', '.join(asked)} may do "
        "nothing; disable-custom-all-reduce makes NCCL take them"
    )
    yield Drift("all-reduce-backends", "NCCL", ", ".join(map(str, backends)), False, text)


def _nccl_names(env: Mapping[str, str | None]) -> list[str]:
    return sorted(name for name, value in env.items() if is_nccl(name) and value)


def _needs_ranks(case: Case) -> str:
    names = _nccl_names(case.args.env)
    parallel = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")
    if not names or any(case.size(flag) > 1 for flag in parallel):
        return ""
    return f"{', '.join(names)} must not be set for one GPU: there is nothing to reduce"


def _values(case: Case) -> str:
    problems = (check_value(n, v) for n, v in sorted(case.args.env.items()) if v is not None)
    return next((problem for problem in problems if problem), "")


def _batch_invariant(case: Case) -> str:
    names = sorted(_BATCH_INVARIANT & set(_nccl_names(case.args.env)))
    if not names or case.args.env.get("VLLM_BATCH_INVARIANT") != "1":
        return ""
    return f"{', '.join(names)} must be absent: VLLM_BATCH_INVARIANT overwrites them"


ENVIRONMENT_RULES = (
    Rule("nccl-needs-ranks", "NCCL variables are set only where two ranks or more use NCCL.",
         "vllm/distributed/device_communicators/cuda_communicator.py", _needs_ranks,
         "Leave the NCCL space out, or use more GPUs."),
    Rule("nccl-value", "An NCCL variable's value is of its type.", "NCCL user guide (2.27)",
         _values, "Correct the value."),
    Rule("nccl-batch-invariant", "Batch-invariant mode and NCCL variables exclude each other.",
         "vllm/model_executor/determinism/batch_invariant.py", _batch_invariant,
         "Remove VLLM_BATCH_INVARIANT or the variables."),
)  # fmt: skip
