"""What values a parameter has, and environment variables by name."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tuner.config.environment import NCCL_NAMES, check_name, is_undocumented_nccl
from tuner.config.space import ParameterConfig
from tuner.engines.nccl import VARIABLES


def values(**domain: object) -> tuple[object, ...]:
    return ParameterConfig.model_validate({"flag": "f", **domain}).values()


def test_ranges_include_both_ends() -> None:
    assert values(int=[1, 4]) == (1, 2, 3, 4)
    assert values(int=[0, 48], step=16) == (0, 16, 32, 48)
    assert values(float=[0.0, 0.9], step=0.3) == (0.0, 0.3, 0.6, 0.9)
    assert values(float=[-1, 1], step=1) == (-1.0, 0.0, 1.0)


def test_a_geometric_grid_ends_with_the_high_end() -> None:
    assert values(int=[1, 16], log=2) == (1, 2, 4, 8, 16)
    assert values(int=[1, 20], log=2) == (1, 2, 4, 8, 16, 20)
    assert values(int=[1, 6], log=1.3) == (1, 2, 3, 4, 5, 6)
    assert values(float=[0.125, 1], log=2) == (0.125, 0.25, 0.5, 1.0)
    assert values(int=[2**20, 2**24], log=2) == tuple(2**n for n in range(20, 25))


@pytest.mark.parametrize(
    "domain",
    [
        {"float": [0.0, 1e300], "step": 0.1},
        {"float": [-1.7e308, 1.7e308], "step": 5e-324},
        {"float": [1e30, 2e30], "step": 1},
        {"int": [0, 10**39]},
        {"int": [1, 10**39], "log": 1.0000000000000002},
    ],
)
def test_ranges_of_any_size_are_refused_not_crashed_on(domain: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="must give at most 2,000 values"):
        ParameterConfig.model_validate({"flag": "f", **domain})


def test_numbers_of_any_size_are_counted_exactly() -> None:
    assert values(int=[10**39, 10**39 + 3]) == tuple(10**39 + n for n in range(4))
    assert values(float=[0.0, 1.5e308], step=7.5e307) == (0.0, 7.5e307, 1.5e308)
    assert values(float=[5e-324, 1.0], log=1e300) == (5e-324, pytest.approx(5e-24), 1.0)
    assert values(int=[1, 10**39], log=1.7e308) == (1, 10**39)


def test_types_of_values() -> None:
    assert {type(value) for value in values(int=[1, 20], log=1.5)} == {int}
    assert {type(value) for value in values(float=[1, 3], step=1)} == {float}
    assert values(choices=["unset", True, False]) == ("unset", True, False)


@given(st.integers(-500, 500), st.integers(1, 50), st.integers(1, 40))
def test_a_stepped_range_is_what_range_gives(low: int, step: int, count: int) -> None:
    high = low + step * count
    assert values(int=[low, high], step=step) == tuple(range(low, high + 1, step))


@given(st.integers(1, 1000), st.integers(1, 10**6), st.floats(1.05, 9).map(lambda b: round(b, 2)))
def test_a_geometric_grid_rises_from_low_to_high(low: int, more: int, base: float) -> None:
    grid = [int(str(value)) for value in values(int=[low, low + more], log=base)]
    assert grid == sorted(set(grid))
    assert (grid[0], grid[-1]) == (low, low + more)
    assert all(after <= (before + 1) * base + 1 for before, after in pairwise(grid))


def test_a_parameter_built_in_code_is_checked_too() -> None:
    with pytest.raises(ValidationError, match="values must be distinct, got \\[1, 1\\]"):
        ParameterConfig(flag="f", choices=[1, 1])
    with pytest.raises(ValidationError, match="must have exactly one of flag, env, got none"):
        ParameterConfig(choices=[1])


@pytest.mark.parametrize("name", ["NCCL_ALGO", "NCCL_SOMETHING_NEW", "OMP_NUM_THREADS", "_x"])
def test_variable_names_that_pass(name: str) -> None:
    assert check_name(name) is None


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NCCL_PROTOO", "NCCL_PROTO"),
        ("NCCL_P2P_LEVLE", "NCCL_P2P_LEVEL"),
        ("NCLL_ALGO", "NCCL_ALGO"),
        ("NCCL_BUFSIZE", "NCCL_BUFFSIZE"),
        ("NCCL_NVLS_ENABLED", "NCCL_NVLS_ENABLE"),
        ("NCCL_MIN_NCHANELS", "NCCL_MIN_NCHANNELS"),
    ],
)
def test_a_slip_in_an_nccl_name_is_an_issue(name: str, near: str) -> None:
    issue = check_name(name)
    assert issue is not None
    assert issue.hint == f"Did you mean {near}?"


def test_every_documented_name_passes() -> None:
    assert [name for name in NCCL_NAMES if check_name(name)] == []
    assert set(VARIABLES) <= NCCL_NAMES


def test_an_unknown_nccl_name_is_only_undocumented() -> None:
    assert is_undocumented_nccl("NCCL_SOMETHING_NEW")
    assert not is_undocumented_nccl("NCCL_ALGO")
    assert not is_undocumented_nccl("OMP_NUM_THREADS")
