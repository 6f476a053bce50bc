"""NCCL's values and whether they took effect."""

from __future__ import annotations

import pytest

from tuner.config.environment import NCCL_NAMES
from tuner.engines.nccl import VARIABLES, check_value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_ALGO", "Ring"), ("NCCL_ALGO", "ring,tree"), ("NCCL_ALGO", "^NVLS"),
        ("NCCL_ALGO", "allreduce:tree;allgather:ring"), ("NCCL_PROTO", "^LL128"),
        ("NCCL_P2P_LEVEL", "SYS"), ("NCCL_P2P_LEVEL", "5"), ("NCCL_BUFFSIZE", "4194304"),
        ("NCCL_NTHREADS", "256"), ("NCCL_NVLS_ENABLE", "2"), ("NCCL_IB_HCA", "mlx5_0:1"),
        ("NCCL_IB_GID_INDEX", "-1"), ("NOT_NCCL", "anything"), ("NCCL_FUTURE", "x y"),
    ],
)  # fmt: skip
def test_values_of_the_right_type_are_accepted(name: str, value: str) -> None:
    assert check_value(name, value) == ""


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("NCCL_ALGO", "Star", "a comma-separated list of Ring"),
        ("NCCL_ALGO", "", "a comma-separated list"),
        ("NCCL_PROTO", " LL", "a comma-separated list"),
        ("NCCL_P2P_DISABLE", "yes", "0 or 1"),
        ("NCCL_P2P_LEVEL", "NVLINK", "one of LOC"),
        ("NCCL_P2P_LEVEL", "9", "0 to 5"),
        ("NCCL_BUFFSIZE", "4MB", "a number of bytes"),
        ("NCCL_NTHREADS", "100", "one of 64"),
        ("NCCL_MAX_NCHANNELS", "0", "from 1 to 64"),
        ("NCCL_NVLS_ENABLE", "3", "0, 1 or 2"),
        ("NCCL_SOCKET_IFNAME", "eth0\0x", "a non-empty text"),
        ("NCCL_BUFFSIZE", "9" * 400, "a number of bytes"),
    ],
)
def test_other_values_are_refused_with_what_is_accepted(name: str, value: str, says: str) -> None:
    text = check_value(name, value)
    assert says in text
    assert text.startswith(f"{name} must be")


def test_every_typed_variable_is_documented() -> None:
    undocumented = set(VARIABLES) - NCCL_NAMES
    assert undocumented <= {"NCCL_SHM_LEVEL", "NCCL_LL128_THRESHOLD"}
