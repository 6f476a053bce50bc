"""Owns what reduces between the GPUs of a running SGLang instead of NCCL, and says so where NCCL
variables are asked for. What NCCL accepts is in `engines.nccl`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.args import ServerArgs
from tuner.config.environment import is_nccl
from tuner.engines.base import Drift
from tuner.engines.sglang import flags as F

CUSTOM = "custom-all-reduce"
"""Not a flag: what the start-up log says of SGLang's own all-reduce kernel."""

_OFF = re.compile(
    r"(?:Custom ?all-?reduce\w*|\w*CustomAllReduce\w*) is disabled (?:because|due to) (.{1,120})|"
    r"(\[AR\] All-reduce call path: NCCL \(custom AR disabled\))|"
    r"(Setup Custom all-?reduce failed with .{1,80})",
    re.I,
)
_FUSED = ("FlashInfer's fused all-reduce", "enforce-disable-flashinfer-allreduce-fusion")
_OTHERS = (
    ("enable-mscclpp", ("MSCCL++", "no enable-mscclpp")),
    ("enable-torch-symm-mem", ("torch's symmetric memory", "no enable-torch-symm-mem")),
    ("flashinfer-allreduce-fusion-backend", _FUSED),
    ("enable-flashinfer-allreduce-fusion", _FUSED),
)
"""Switches of reducers that go before NCCL (srt/distributed/parallel_state.py:745-993, 0.5.23),
newer and older names: what each is, and what keeps it away."""


def parse_start_log(text: str) -> dict[str, Any]:
    """`custom-all-reduce: off (why)` where the log says so; {} where it says nothing."""
    found = _OFF.search(text)
    if found is None:
        return {}
    why = next(group for group in found.groups() if group).split(". To silence")[0]
    return {CUSTOM: f"off ({why.strip().rstrip('.')})"}


def collective_drifts(args: ServerArgs, effective: Mapping[str, Any]) -> Iterator[Drift]:
    """Where NCCL variables are asked for and another reducer takes the small messages first.

    The custom kernel takes up to 16 MB on linked GPUs, and on any two; whether it works here is
    known from the log alone (`parse_start_log`), so without its word it is assumed to.
    """
    asked = sorted(name for name, value in args.env.items() if is_nccl(name) and value)
    if not asked or not effective or _ranks(args, effective) < 2:
        return
    before = [reducer for flag, reducer in _OTHERS if _is_on(effective.get(flag))]
    if not effective.get("disable-custom-all-reduce") and CUSTOM not in effective:
        before.append(("SGLang's custom all-reduce", "disable-custom-all-reduce"))
    names, ways = dict(before).keys(), dict(before).values()
    if before:
        text = (
            f"{' and '.join(names)} may reduce small messages before NCCL sees them, so "
            f"{', '.join(asked)} may do nothing for decoding; {' and '.join(ways)} makes NCCL "
            "take them"
        )
        yield Drift("all-reduce", "NCCL", ", ".join(names), False, text)


def _is_on(value: object) -> bool:
    return value not in (None, False, "", "None", "none", "null")


def _ranks(args: ServerArgs, effective: Mapping[str, Any]) -> int:
    return F.as_int(effective.get("tp-size", args.flags.get("tp-size"))) or 1
