"""Matrices of nvidia-smi, and what sysfs says about peer access."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tuner.host.topology import (
    Topology,
    acs_control,
    parse_topology,
    peer_hints,
    read_topology,
    redirecting_bridges,
)

PCIE = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tPIX\tSYS\tNODE\t0-31\t0\t\tN/A
GPU1\tPIX\t X \tSYS\tNODE\t0-31\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tNODE\tNODE\tSYS\t X \t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
"""
NVLINK = """\
        \x1b[4mGPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\x1b[0m
GPU0     X      NV18    0-23,96-119     0               N/A
GPU1    NV18     X      24-47,120-143   1               N/A
"""
PEERS = """\
 \tGPU0\tGPU1\tGPU2\t
 GPU0\tX\tOK\tGNS\t
 GPU1\tOK\tX\tCNS\t
 GPU2\tGNS\tCNS\tX\t
"""


def bridge(sys: Path, name: str, control: int, kind: str = "0x060400") -> None:
    folder = sys / "bus/pci/devices" / name
    folder.mkdir(parents=True)
    (folder / "class").write_text(kind + "\n")
    config = bytearray(4096)
    struct.pack_into("<I", config, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)  # errors, then ACS
    struct.pack_into("<I", config, 0x148, 0x000D | 1 << 16)
    struct.pack_into("<HH", config, 0x14C, 0x5F, control)
    (folder / "config").write_bytes(config)


def test_a_pcie_machine() -> None:
    topology = parse_topology(PCIE, PEERS)
    assert topology.gpus == 3
    assert topology.links == {(0, 1): "PIX", (0, 2): "SYS", (1, 2): "SYS"}
    assert topology.numa == {0: "0", 1: "0", 2: "1"}
    assert topology.peer_access == {(0, 1): True, (0, 2): False, (1, 2): False}
    assert topology.summary == "3 GPUs, PCIe only, farthest pair between NUMA nodes"


def test_an_nvlink_machine_needs_no_hints(tmp_path: Path) -> None:
    topology = parse_topology(NVLINK)
    assert topology.is_nvlink
    assert topology.numa == {0: "0", 1: "1"}
    assert topology.summary == "2 GPUs, NVLink between all"
    bridge(tmp_path, "0000:00:01.0", 0x1D)
    assert peer_hints(topology, tmp_path) == []


def test_no_gpus_at_all() -> None:
    assert parse_topology("", "") == Topology(0)
    assert parse_topology("NVIDIA-SMI has failed because it couldn't communicate").gpus == 0
    assert Topology(1).summary == "1 GPU"
    assert Topology(0).summary == "0 GPUs"


def test_acs_and_iommu_are_named(tmp_path: Path) -> None:
    bridge(tmp_path, "0000:00:01.0", 0x1D)
    bridge(tmp_path, "0000:00:02.0", 0x01)
    bridge(tmp_path, "0000:01:00.0", 0x1D, kind="0x030200")
    group = tmp_path / "kernel/iommu_groups/7"
    group.mkdir(parents=True)
    (group / "type").write_text("DMA-FQ\n")
    assert redirecting_bridges(tmp_path) == ["0000:00:01.0"]
    hints = peer_hints(parse_topology(PCIE, PEERS), tmp_path)
    assert len(hints) == 3
    assert "between GPUs 0-2, 1-2" in hints[0]
    assert "at 1 PCIe bridges (0000:00:01.0" in hints[1]
    assert "iommu=pt" in hints[2]


def test_pass_through_is_no_hint(tmp_path: Path) -> None:
    group = tmp_path / "kernel/iommu_groups/7"
    group.mkdir(parents=True)
    (group / "type").write_text("identity\n")
    assert peer_hints(parse_topology(PCIE), tmp_path) == []


def test_a_configuration_that_may_not_be_read_or_loops() -> None:
    assert acs_control(b"\0" * 64) == 0
    looping = bytearray(4096)
    struct.pack_into("<I", looping, 0x100, 0x0001 | 1 << 16 | 0x100 << 20)
    assert acs_control(bytes(looping)) == 0


@pytest.mark.parametrize(
    ("links", "summary"),
    [
        (
            {(0, 1): "NV18", (0, 2): "PIX", (1, 2): "PHB"},
            "NVLink between some, farthest pair a PCIe",
        ),
        ({(0, 1): "PIX", (0, 2): "PXB", (1, 2): "PIX"}, "PCIe only, farthest pair several PCIe"),
        (
            {(0, 1): "NODE", (0, 2): "PHB", (1, 2): "PIX"},
            "PCIe only, farthest pair host bridges of",
        ),
        ({(0, 1): "NEW", (0, 2): "NEW", (1, 2): "NEW"}, "PCIe only, farthest pair NEW"),
        ({}, "3 GPUs"),
    ],
)
def test_the_summary_names_the_farthest_pair(
    links: dict[tuple[int, int], str], summary: str
) -> None:
    assert summary in Topology(3, links).summary


def test_two_gpus_are_a_pair_and_one_is_none(tmp_path: Path) -> None:
    bridge(tmp_path, "0000:00:01.0", 0x1D)
    assert len(peer_hints(Topology(2, {(0, 1): "SYS"}), tmp_path)) == 1
    assert peer_hints(Topology(1), tmp_path) == []


@pytest.mark.parametrize("control", [0x0, 0x1, 0x4, 0x8, 0x1D, 0xFFFF])
@pytest.mark.parametrize("place", [0x100, 0x148, 0xFF8])
def test_the_control_register_is_found_wherever_the_capability_lies(
    control: int, place: int
) -> None:
    config = bytearray(4096)
    if place != 0x100:
        struct.pack_into("<I", config, 0x100, 0x0001 | 1 << 16 | place << 20)
    struct.pack_into("<I", config, place, 0x000D | 1 << 16)
    struct.pack_into("<HH", config, place + 4, 0x5F, control)
    assert acs_control(bytes(config)) == control
    assert acs_control(bytes(config[: place + 7])) == 0, "cut off before the register ends"


@pytest.mark.parametrize(("code", "gpus"), [(0, 3), (9, 0)])
def test_the_matrices_are_asked_of_the_drivers_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, gpus: int
) -> None:
    (tmp_path / "matrix").write_text(PCIE)
    (tmp_path / "peers").write_text(PEERS)
    program = tmp_path / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\nread_from=matrix; [ "$2" = -p2p ] && read_from=peers\n'
        f'while IFS= read -r line; do printf "%s\\n" "$line"; done < {tmp_path}/$read_from\n'
        f"exit {code}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = read_topology()
    assert found.gpus == gpus
    assert len(found.peer_access) == (3 if gpus else 0)


def test_no_program_means_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_topology() == Topology(0)
