"""NCCL's values and whether they took effect."""

from __future__ import annotations

import pytest

from tuner.config.environment import NCCL_NAMES
from tuner.engines.nccl import VARIABLES, check_value, forces_ll128, is_debug
from tuner.engines.nccl_effects import (
    bypassed,
    inert,
    not_taken,
    overwritten,
    parse_echo,
    parse_environ,
    parse_version,
)

DEBUG = """\
host:1:1 [0] NCCL INFO NCCL_PROTO set by environment to LL
host:1:1 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to 0
host:1:1 [0] NCCL INFO NCCL_ALGO set by environment to ring.
host:1:1 [0] NCCL INFO NCCL version 2.27.5+cuda13.0
"""


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


def test_forced_ll128_and_debug_variables_are_known() -> None:
    assert forces_ll128("NCCL_PROTO", "LL,LL128,Simple")
    assert forces_ll128("NCCL_PROTO", "ll128")
    assert not forces_ll128("NCCL_PROTO", "^LL128")
    assert not forces_ll128("NCCL_PROTO", "LL")
    assert is_debug("NCCL_DEBUG")
    assert not is_debug("NCCL_PROTO")


def test_a_workers_environment_is_compared_with_what_was_asked() -> None:
    worker = parse_environ("NCCL_NVLS_ENABLE=0\0PATH=/bin:/usr=x\0NCCL_CUMEM_ENABLE=0\0broken\0")
    assert worker["PATH"] == "/bin:/usr=x"
    asked = {"NCCL_NVLS_ENABLE": "1", "NCCL_ALGO": "Ring", "NCCL_CUMEM_ENABLE": None, "X": None}
    assert overwritten(asked, worker) == {
        "NCCL_NVLS_ENABLE": "0", "NCCL_ALGO": "", "NCCL_CUMEM_ENABLE": "0",
    }  # fmt: skip
    assert overwritten({"NCCL_CUMEM_ENABLE": "0"}, worker) == {}


def test_ncclls_echo_shows_what_was_not_understood() -> None:
    assert parse_echo(DEBUG) == {"NCCL_PROTO": "LL", "NCCL_P2P_LEVEL": "0", "NCCL_ALGO": "ring"}
    assert parse_version(DEBUG) == "2.27.5+cuda13.0"
    assert parse_version("nothing") == ""
    asked = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "NCCL_P2P_LEVEL": "NVL", "NCCL_X": "1"}
    assert not_taken(asked, DEBUG) == {"NCCL_P2P_LEVEL": "0"}
    assert not_taken({"NCCL_P2P_LEVEL": "LOC"}, DEBUG) == {}
    assert not_taken({"NCCL_P2P_LEVEL": "SYS"}, DEBUG.replace("to 0", "to 5")) == {}


def test_what_bypasses_nccl_is_named() -> None:
    assert "custom all-reduce" in bypassed({}, 8, full_nvlink=True)
    assert "custom all-reduce" in bypassed({}, 2, full_nvlink=False)
    assert bypassed({}, 8, full_nvlink=False) == ""
    assert bypassed({}, 8, full_nvlink=None) == ""
    assert bypassed({"disable-custom-all-reduce": True}, 8, full_nvlink=True) == ""
    assert "mscclpp" in bypassed({"enable-mscclpp": True}, 8, full_nvlink=False)
    assert "symmetric" in bypassed({"enable-torch-symm-mem": True}, 8, full_nvlink=False)


def test_a_parameter_is_inert_when_changing_it_alone_changed_nothing() -> None:
    trials = [
        ({"steps": 1, "algo": "unset"}, 100.0),
        ({"steps": 3, "algo": "unset"}, 130.0),
        ({"steps": 1, "algo": "Ring"}, 101.0),
        ({"steps": 3, "algo": "Ring"}, 129.0),
        ({"steps": 5, "algo": "Ring", "proto": "LL"}, 129.0),
    ]
    assert inert(trials, noise=0.02) == ["algo"]
    assert inert(trials, noise=0.005) == []
    assert inert(trials[:1], noise=0.02) == []
