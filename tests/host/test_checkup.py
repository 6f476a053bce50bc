"""What the doctor says of readings: ok, warn or fail, and what to do."""

from __future__ import annotations

import pytest

from tuner.host import checkup
from tuner.host.checkup import Check
from tuner.host.gpus import Gpu, GpuReading
from tuner.host.load import ForeignLoad
from tuner.host.topology import Topology

GIB = 1 << 30
H200 = "NVIDIA H200"


def gpu(index: int, name: str = H200) -> Gpu:
    return Gpu(index, name, f"GPU-{index}", 141 * GIB, "570.86")


def reading(index: int, used: int = 0, throttled: tuple[str, ...] = ()) -> GpuReading:
    processes = {4711: used} if used else {}
    return GpuReading(index, 1980, 40, 90.0, used, throttled, processes)


def test_the_interpreter() -> None:
    assert checkup.check_python((3, 11, 7)) == Check("python", "ok", "3.11.7")
    assert checkup.check_python((3, 10, 1)).state == "fail"


@pytest.mark.parametrize(
    ("free", "state", "detail"),
    [
        (16 * GIB, "ok", "16 GiB free"),
        (1 * GIB, "warn", "1 GiB free, 2 GiB are better"),
        (100 << 20, "fail", "100 MiB free, 256 MiB are needed"),
        (None, "warn", "there is none"),
    ],
)
def test_free_memory(free: int | None, state: str, detail: str) -> None:
    found = checkup.check_free(checkup.MEMORY, free)
    assert (found.state, found.detail) == (state, detail)
    assert bool(found.hint) == (state != "ok")


def test_gpus_that_are_alike() -> None:
    found = list(checkup.check_gpus([gpu(0), gpu(1)], are_needed=True, has_nvml=True))
    assert found == [
        Check("gpus", "ok", "2 x NVIDIA H200, 141 GiB"),
        Check("driver", "ok", "570.86"),
    ]


def test_unequal_gpus_and_no_readings_are_warned_of() -> None:
    found = list(
        checkup.check_gpus([gpu(0), gpu(1, "NVIDIA L4")], are_needed=True, has_nvml=False)
    )
    assert [check.state for check in found] == ["warn", "ok", "warn"]
    assert found[0].detail.endswith("unequal GPUs")
    assert "speculative-tuner[gpu]" in found[2].hint


@pytest.mark.parametrize(("are_needed", "state"), [(True, "warn"), (False, "ok")])
def test_no_gpu(are_needed: bool, state: str) -> None:
    (found,) = checkup.check_gpus([], are_needed=are_needed, has_nvml=False)
    assert (found.state, found.detail) == (state, "no NVIDIA GPU is visible")


def test_gpus_in_use_and_held_back() -> None:
    assert list(checkup.check_readings([])) == []
    memory, clocks = checkup.check_readings([reading(0), reading(1, 3 * GIB, ("power cap",))])
    assert memory.detail == "GPU 1 holds 3 GiB by process 4711"
    assert (memory.state, clocks.state) == ("warn", "warn")
    assert clocks.detail == "GPU 1: power cap"
    memory, clocks = checkup.check_readings([reading(0)])
    assert clocks == Check("gpu clocks", "ok", "1980 to 1980 MHz, not held back")


def test_topology_and_what_breaks_peer_access() -> None:
    pcie = Topology(2, {(0, 1): "SYS"})
    hint = "an IOMMU translates device memory: boot with iommu=pt"
    assert list(checkup.check_topology(Topology(1), [])) == []
    assert [c.detail for c in checkup.check_topology(pcie, [])] == [
        "2 GPUs, PCIe only, farthest pair between NUMA nodes",
        "neither ACS nor an IOMMU stands in its way",
    ]
    _, warned = checkup.check_topology(pcie, [hint])
    assert warned == Check(
        "peer access", "warn", "an IOMMU translates device memory", "Boot with iommu=pt."
    )


def test_the_governor() -> None:
    assert checkup.check_governor([]).detail == "not told by this machine"
    assert checkup.check_governor(["performance"] * 2).state == "ok"
    found = checkup.check_governor(["schedutil", "performance"])
    assert found.detail == "governor performance, schedutil: clocks follow the load"
    assert found.state == "warn"


def test_the_load() -> None:
    quiet = checkup.check_load(ForeignLoad(0.5, 8, 0.02, 0.03, 0.0))
    assert (quiet.state, quiet.detail) == ("ok", "0.1 of 8 cores busy with others")
    busy = checkup.check_load(ForeignLoad(0.5, 8, 2.0, 0.0, 0.0, (("cc1plus", 12, 2.0),)))
    assert busy.state == "warn"
    assert busy.detail == "another process was busy, cores used: cc1plus (12): 2.0"


def test_a_check_as_json() -> None:
    assert Check("disk", "warn", "1 GiB free", "Free space.").to_json() == {
        "name": "disk",
        "ok": True,
        "state": "warn",
        "detail": "1 GiB free",
        "hint": "Free space.",
    }
    assert Check("disk", "fail", "0 B free").to_json()["ok"] is False
