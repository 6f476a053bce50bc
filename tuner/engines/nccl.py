"""Owns the values NCCL's environment variables take.

Names are `config.environment`'s; whether a server has them is `server.environments`'. LL128, lists
of protocols are never offered by a shipped space: a forced protocol bypasses NCCL's own check
that the hardware orders 128-byte stores (NCCL issue 1081).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ALGORITHMS = ("Ring", "Tree", "CollnetChain", "CollnetDirect", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")
_P2P_LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable of NCCL.

    Args:
        name: the variable.
        kind: `switch` (0 or 1), `tristate` (also 2), `int`, `size` (bytes), `choice`, `list`
            (comma-separated choices, `^` excludes), `level` (a choice or its number), `text`.
        choices: accepted words of a choice, list or level; compared without case.
        low, high: limits of an int or size.
        note: what a user must know before setting it.
    """

    name: str
    kind: str
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = 2**40
    note: str = ""


VARIABLES: Mapping[str, Variable] = {
    variable.name: variable
    for variable in (
        Variable("NCCL_ALGO", "list", _ALGORITHMS),
        Variable("NCCL_PROTO", "list", _PROTOCOLS,
                 note="LL128 gives wrong data where 128-byte stores are not ordered"),
        Variable("NCCL_P2P_LEVEL", "level", _P2P_LEVELS, high=5),
        Variable("NCCL_P2P_DISABLE", "switch"),
        Variable("NCCL_P2P_DIRECT_DISABLE", "switch"),
        Variable("NCCL_P2P_USE_CUDA_MEMCPY", "switch"),
        Variable("NCCL_P2P_NET_CHUNKSIZE", "size"),
        Variable("NCCL_P2P_PCI_CHUNKSIZE", "size"),
        Variable("NCCL_P2P_NVL_CHUNKSIZE", "size"),
        Variable("NCCL_SHM_DISABLE", "switch"),
        Variable("NCCL_SHM_LEVEL", "level", _P2P_LEVELS, high=5),
        Variable("NCCL_BUFFSIZE", "size", low=1024),
        Variable("NCCL_NTHREADS", "choice", ("64", "128", "256", "512", "640")),
        Variable("NCCL_MIN_NCHANNELS", "int", low=1, high=64),
        Variable("NCCL_MAX_NCHANNELS", "int", low=1, high=64),
        Variable("NCCL_MIN_CTAS", "int", low=1, high=64),
        Variable("NCCL_MAX_CTAS", "int", low=1, high=64),
        Variable("NCCL_NCHANNELS_PER_NET_PEER", "int", low=1, high=64),
        Variable("NCCL_MIN_P2P_NCHANNELS", "int", low=1, high=64),
        Variable("NCCL_MAX_P2P_NCHANNELS", "int", low=1, high=64),
        Variable("NCCL_LL_THRESHOLD", "size"),
        Variable("NCCL_LL128_THRESHOLD", "size"),
        Variable("NCCL_THREAD_THRESHOLDS", "text"),
        Variable("NCCL_NVLS_ENABLE", "tristate", high=2),
        Variable("NCCL_NVLS_NCHANNELS", "int", low=1, high=64),
        Variable("NCCL_CUMEM_ENABLE", "switch"),
        Variable("NCCL_CUMEM_HOST_ENABLE", "switch"),
        Variable("NCCL_GRAPH_REGISTER", "switch"),
        Variable("NCCL_GRAPH_MIXING_SUPPORT", "switch"),
        Variable("NCCL_LOCAL_REGISTER", "switch"),
        Variable("NCCL_WIN_ENABLE", "switch"),
        Variable("NCCL_MNNVL_ENABLE", "tristate", high=2),
        Variable("NCCL_COLLNET_ENABLE", "switch"),
        Variable("NCCL_COLLNET_NODE_THRESHOLD", "int", high=1024),
        Variable("NCCL_CROSS_NIC", "tristate", high=2),
        Variable("NCCL_NET", "text"),
        Variable("NCCL_NET_PLUGIN", "text"),
        Variable("NCCL_TUNER_PLUGIN", "text"),
        Variable("NCCL_NET_GDR_LEVEL", "level", _P2P_LEVELS, high=5),
        Variable("NCCL_NET_GDR_READ", "switch"),
        Variable("NCCL_NET_GDR_C2C", "switch"),
        Variable("NCCL_NET_SHARED_BUFFERS", "switch"),
        Variable("NCCL_PXN_DISABLE", "switch"),
        Variable("NCCL_IB_DISABLE", "switch"),
        Variable("NCCL_IB_HCA", "text"),
        Variable("NCCL_IB_GID_INDEX", "int", low=-1, high=255),
        Variable("NCCL_IB_TIMEOUT", "int", low=1, high=31),
        Variable("NCCL_IB_RETRY_CNT", "int", high=7),
        Variable("NCCL_IB_SL", "int", high=15),
        Variable("NCCL_IB_TC", "int", high=255),
        Variable("NCCL_IB_QPS_PER_CONNECTION", "int", low=1, high=128),
        Variable("NCCL_IB_SPLIT_DATA_ON_QPS", "switch"),
        Variable("NCCL_IB_ADAPTIVE_ROUTING", "switch"),
        Variable("NCCL_IB_PCI_RELAXED_ORDERING", "tristate", high=2),
        Variable("NCCL_SOCKET_IFNAME", "text"),
        Variable("NCCL_SOCKET_FAMILY", "choice", ("AF_INET", "AF_INET6")),
        Variable("NCCL_SOCKET_NTHREADS", "int", low=1, high=16),
        Variable("NCCL_NSOCKS_PERTHREAD", "int", low=1, high=16),
        Variable("NCCL_TOPO_FILE", "text"),
        Variable("NCCL_IGNORE_CPU_AFFINITY", "switch"),
        Variable("NCCL_LAUNCH_MODE", "choice", ("PARALLEL", "GROUP")),
        Variable("NCCL_LAUNCH_ORDER_IMPLICIT", "switch"),
        Variable("NCCL_LAUNCH_RACE_FATAL", "switch"),
        Variable("NCCL_SET_STACK_SIZE", "switch"),
        Variable("NCCL_WORK_FIFO_BYTES", "size"),
        Variable("NCCL_PROGRESS_APPENDOP_FREQ", "int", low=1),
        Variable("NCCL_CHECKS_DISABLE", "switch"),
        Variable("NCCL_CHECK_POINTERS", "switch"),
        Variable("NCCL_RUNTIME_CONNECT", "switch"),
        Variable("NCCL_DEBUG", "choice", ("VERSION", "WARN", "INFO", "TRACE", "ABORT")),
        Variable("NCCL_DEBUG_SUBSYS", "text"),
        Variable("NCCL_DEBUG_FILE", "text"),
        Variable("NCCL_GRAPH_DUMP_FILE", "text"),
        Variable("NCCL_TOPO_DUMP_FILE", "text"),
        Variable("NCCL_HOSTID", "text"),
        Variable("NCCL_COMM_BLOCKING", "switch"),
        Variable("NCCL_CONF_FILE", "text"),
    )
}  # fmt: skip
"""From the NCCL user guide (2.27) and its release notes."""


def check_value(name: str, value: str) -> str:
    """What is wrong with a value in one line, naming what is accepted; "" for nothing."""
    variable = VARIABLES.get(name)
    if variable is None:
        return ""
    if not value or value != value.strip() or "\0" in value:
        return f"{name} must be {_accepted(variable)}, got {value!r}"
    return (
        "" if _accepts(variable, value) else f"{name} must be {_accepted(variable)}, got {value}"
    )


def _accepts(variable: Variable, value: str) -> bool:
    words = {choice.lower() for choice in variable.choices}
    if variable.kind == "text":
        return True
    if variable.kind == "switch":
        return value in {"0", "1"}
    if variable.kind == "choice":
        return value.lower() in words
    if variable.kind == "list":
        return _accepts_list(value, words)
    if variable.kind == "level" and value.lower() in words:
        return True
    if not re.fullmatch(r"-?[0-9]{1,15}", value):
        return False
    return variable.low <= int(value) <= variable.high


def _accepts_list(value: str, words: set[str]) -> bool:
    """`Ring`, `Ring,Tree`, `^LL128`, and since 2.24 `allreduce:tree;allgather:ring`."""
    for group in value.split(";"):
        names = group.rpartition(":")[2].removeprefix("^").lower().split(",")
        if not all(name.strip() in words for name in names):
            return False
    return True


def _accepted(variable: Variable) -> str:
    words = ", ".join(variable.choices)
    return {
        "switch": "0 or 1",
        "tristate": "0, 1 or 2",
        "choice": f"one of {words}",
        "list": f"a comma-separated list of {words} (^ excludes)",
        "level": f"one of {words}, or 0 to {variable.high}",
        "size": f"a number of bytes from {variable.low}",
        "int": f"a whole number from {variable.low} to {variable.high}",
        "text": "a non-empty text",
    }[variable.kind]
