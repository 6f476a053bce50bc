"""Which devices and CPUs each server gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.config.loader import load_study
from tuner.config.study import StudyConfig
from tuner.errors import UsageError
from tuner.search.placement import (
    Seat,
    devices_per_server,
    host_devices,
    needs_seats,
    physical_cores,
    plan_seats,
    share_cpus,
    world_size,
)

STUDY = """
name: demo
engine: {{kind: fake, args: {args}, env: {env}}}
space: {{parameters: {{steps: {{flag: spec-steps, choices: [1]}}}}}}
workload: {{prompts: {{builtin: mixed}}}}
objective: {{maximize: output_tokens_per_s}}
execution: {execution}
"""
EIGHT = tuple("01234567")


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def make(execution: str, args: str = "{}", env: str = "{}") -> StudyConfig:
        path = tmp_path / "demo.yaml"
        path.write_text(STUDY.format(execution=execution, args=args, env=env))
        return load_study(path).config

    return make


def test_eight_gpus_hold_four_servers_of_two(config: Any) -> None:
    four = config("{kind: local, parallel: 4}", args="{tp-size: 2}")
    seats = plan_seats(four, EIGHT, [])
    assert [seat.devices for seat in seats] == [("0", "1"), ("2", "3"), ("4", "5"), ("6", "7")]
    assert seats[1].environment() == {
        "CUDA_VISIBLE_DEVICES": "2,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    assert Seat(0).environment() == {}


def test_too_few_gpus_are_refused_by_name(config: Any) -> None:
    four = config("{kind: local, parallel: 4}", args="{tp-size: 4}")
    with pytest.raises(UsageError, match=r"execution.parallel: must be at most 2") as caught:
        plan_seats(four, EIGHT, [])
    assert "tensor-parallel" in caught.value.hint


@pytest.mark.parametrize(
    ("execution", "args", "devices", "each"),
    [
        ("{kind: local}", "{}", 8, 8),
        ("{kind: local, parallel: 2}", "{}", 8, 4),
        ("{kind: local}", "{tensor-parallel-size: 2, pipeline-parallel-size: 2}", 8, 4),
        ("{kind: local, parallel: 3, gpus_per_server: 1}", "{tp-size: 8}", 8, 1),
        ("{kind: local, parallel: 3}", "{}", 0, 0),
    ],
)  # fmt: skip
def test_gpus_of_one_server(
    config: Any, execution: str, args: str, devices: int, each: int
) -> None:
    assert devices_per_server(config(execution, args), devices) == each


def test_world_size_is_none_where_no_flag_says_it() -> None:
    assert world_size({"tp-size": 4, "pp-size": 2}) == 8
    assert world_size({"tp-size": True}) is None
    assert world_size({}) is None


def test_inherited_devices_are_all_there_are(config: Any) -> None:
    everything = config("{kind: local}").execution
    two = config("{kind: local, gpus: [3, 2]}").execution
    visible = {"CUDA_VISIBLE_DEVICES": "2, 3,5"}
    assert host_devices(everything, visible) == ("2", "3", "5")
    assert host_devices(two, visible) == ("3", "2")
    assert needs_seats(two)
    assert not needs_seats(everything)
    with pytest.raises(UsageError, match=r"execution.gpus: must name GPUs .*\(5\), got 3, 2"):
        host_devices(two, {"CUDA_VISIBLE_DEVICES": "5"})
    with pytest.raises(UsageError, match="got 3, 2"):
        host_devices(two, {"CUDA_VISIBLE_DEVICES": ""})


def test_two_masters_of_the_visible_devices_are_refused(config: Any) -> None:
    placed = config("{kind: local, parallel: 2}", env="{CUDA_VISIBLE_DEVICES: '0'}")
    with pytest.raises(UsageError, match=r"engine.env.CUDA_VISIBLE_DEVICES: .* got 0"):
        plan_seats(placed, EIGHT, [])


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    """Two packages of two cores; CPU n and n + 4 are one core, as on many servers."""
    for cpu in range(8):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
        (folder / "physical_package_id").write_text(f"{cpu % 2}\n")
    return tmp_path


def test_servers_share_no_core_and_stay_in_their_package(topology: Path) -> None:
    assert physical_cores(range(8), topology) == [(0, 4), (2, 6), (1, 5), (3, 7)]
    assert share_cpus(range(8), 2, topology) == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert share_cpus(range(8), 3, topology) == [(0, 4), (2, 6), (1, 5)]
    assert share_cpus([0, 1, 4], 2, topology) == [(0, 4), (1,)]


def test_one_server_or_too_few_cores_are_not_restricted(topology: Path) -> None:
    assert share_cpus(range(8), 1, topology) == [()]
    assert share_cpus(range(8), 5, topology) == [()] * 5
