"""Matrices of nvidia-smi, and what sysfs says about peer access."""

from __future__ import annotations

import struct
from pathlib import Path

from tuner.host.topology import (
    Topology,
    acs_control,
    parse_topology,
    peer_hints,
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
