"""Owns what is known about environment variables: their shape, NCCL's documented names.

A misspelt NCCL variable is ignored by NCCL without a word, so a name close to a documented one is
an error. Knows no engine.
"""

from __future__ import annotations

import re

from tuner.config.base import Issue, nearest

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = "TUNER_"
"""Variables with this prefix mark the tuner's own servers."""

MOST_BYTES = 131_071
"""Of NAME=VALUE: Linux starts no program with a longer one."""

_DOCUMENTED = """
ALGO ALLOC_P2P_NET_LL_BUFFERS BUFFSIZE CGA_CLUSTER_SIZE CHECKS_DISABLE CHECK_POINTERS
COLLNET_ENABLE COLLNET_NODE_THRESHOLD COMM_BLOCKING COMM_ID COMM_SPLIT_SHARE_RESOURCES
CONF_FILE CONNECT_ROUND_MAX_PEERS CROSS_NIC CTA_POLICY CUMEM_ENABLE CUMEM_HOST_ENABLE DEBUG
DEBUG_FILE DEBUG_SUBSYS DEBUG_TIMESTAMP_FORMAT DEBUG_TIMESTAMP_LEVELS DMABUF_ENABLE
GRAPH_DUMP_FILE GRAPH_FILE GRAPH_MIXING_SUPPORT GRAPH_REGISTER HOSTID IB_ADAPTIVE_ROUTING
IB_ADDR_FAMILY IB_ADDR_RANGE IB_AR_THRESHOLD IB_CUDA_SUPPORT IB_DISABLE IB_ECE_ENABLE
IB_FIFO_TC IB_GID_INDEX IB_HCA IB_MERGE_NICS IB_MERGE_VFS IB_PCI_RELAXED_ORDERING
IB_QPS_PER_CONNECTION IB_RETRY_CNT IB_RETURN_ASYNC_EVENTS IB_ROCE_VERSION_NUM IB_SL
IB_SPLIT_DATA_ON_QPS IB_TC IB_TIMEOUT IGNORE_CPU_AFFINITY IGNORE_DISABLED_P2P
L1_SHARED_MEMORY_CARVEOUT LAUNCH_MODE LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL
LEGACY_CUDA_REGISTER LL128_BUFFSIZE LL128_NTHREADS LL128_THRESHOLD LL_BUFFSIZE LL_THRESHOLD
LOCAL_REGISTER MAX_CTAS MAX_NCHANNELS MAX_NRINGS MAX_P2P_NCHANNELS MEM_SYNC_DOMAIN MIN_CTAS
MIN_NCHANNELS MIN_NRINGS MIN_P2P_NCHANNELS MNNVL_CLIQUE_ID MNNVL_ENABLE MNNVL_UUID
NCHANNELS_PER_NET_PEER NET NETDEVS_POLICY NET_DISABLE_INTRA NET_FORCE_FLUSH NET_GDR_C2C
NET_GDR_LEVEL NET_GDR_READ NET_MERGE_LEVEL NET_OVERHEAD NET_PLUGIN NET_SHARED_BUFFERS
NET_SHARED_COMMS NSOCKS_PERTHREAD NTHREADS NVB_DISABLE NVLSTREE_MAX_CHUNKSIZE NVLS_CHUNKSIZE
NVLS_ENABLE NVLS_NCHANNELS OOB_NET_ENABLE OOB_NET_IFNAME P2P_DIRECT_DISABLE P2P_DISABLE
P2P_LEVEL P2P_LL_THRESHOLD P2P_NET_CHUNKSIZE P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE P2P_PXN_LEVEL
P2P_READ_ENABLE P2P_USE_CUDA_MEMCPY PROFILER_PLUGIN PROFILE_EVENT_MASK PROGRESS_APPENDOP_FREQ
PROTO PXN_C2C PXN_DISABLE RAS_ADDR RAS_ENABLE RAS_TIMEOUT_FACTOR RUNTIME_CONNECT SET_STACK_SIZE
SET_THREAD_NAME SHM_DISABLE SHM_LEVEL SHM_LOCALITY SHM_USE_CUDA_MEMCPY
SINGLE_PROC_MEM_REG_ENABLE SINGLE_RING_THRESHOLD SOCKET_FAMILY SOCKET_IFNAME SOCKET_INLINE
SOCKET_MIN_TASKSIZE SOCKET_NTHREADS SOCKET_POLL_TIMEOUT_MSEC SOCKET_RETRY_CNT
SOCKET_RETRY_SLEEP_MSEC SYM_CTAS THREAD_THRESHOLDS TOPO_DUMP_FILE TOPO_FILE TREE_THRESHOLD
TUNER_CONFIG_FILE TUNER_PLUGIN UID_STAGGER_RATE UID_STAGGER_THRESHOLD UNPACK_ENABLE WIN_ENABLE
WORK_ARGS_BYTES WORK_FIFO_BYTES
"""
NCCL_NAMES = frozenset(f"NCCL_{name}" for name in _DOCUMENTED.split())
"""Variables of NCCL 2.4 to 2.28 (user guide and sources): a slip of one of them is an error."""


def check_name(name: str, at: tuple[str | int, ...] = ()) -> Issue | None:
    """The issue of a variable name, if there is one."""
    if not _NAME.fullmatch(name):
        return Issue(
            f"must be a variable name of letters, digits and underscores, got {name!r}",
            "Write the bare name, without $ and =.",
            at,
        )
    if name.startswith(RESERVED):
        return Issue(f"must not begin with {RESERVED}, got {name}", "Choose another.", at)
    near = nearest(name, NCCL_NAMES) if name.startswith(("NCCL", "NCLL")) else None
    if near and name not in NCCL_NAMES and _differs_little(name, near):
        return Issue(
            f"must be a variable that NCCL reads, got {name}", f"Did you mean {near}?", at
        )
    return None


def check_value(name: str, value: str, at: tuple[str | int, ...] = ()) -> Issue | None:
    """The issue of a variable's value, if the system could not hand it to a program."""
    if "\0" in value:
        return Issue("must not hold a NUL character, which no program gets", "Remove it.", at)
    size = len(f"{name}={value}".encode(errors="surrogatepass"))
    if size > MOST_BYTES:
        return Issue(
            f"must be at most {MOST_BYTES} bytes with its name, got {size}",
            "Put it into a file, and the file's name here.",
            at,
        )
    return None


def is_nccl(name: str) -> bool:
    """True for the variables of NCCL."""
    return name.startswith("NCCL_")


def is_undocumented_nccl(name: str) -> bool:
    """True for an NCCL variable that no release documents: NCCL may ignore it."""
    return is_nccl(name) and name not in NCCL_NAMES


def _differs_little(name: str, near: str) -> bool:
    """At most two letters apart (in length too): a slip, not another variable."""
    if abs(len(name) - len(near)) > 2:
        return False
    return _distance(name.upper(), near) <= 2


def _distance(a: str, b: str) -> int:
    """Edit distance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]
