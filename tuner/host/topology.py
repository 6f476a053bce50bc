"""Owns how the GPUs are connected: NVLink or PCIe, peer access, and what may break it.

Texts of `nvidia-smi topo` are parsed here; hints about ACS and the IOMMU come from sysfs.
"""

from __future__ import annotations

import itertools
import re
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(\d+)$")
_DISTANCES = {
    "PIX": "one PCIe bridge",
    "PXB": "several PCIe bridges",
    "PHB": "a PCIe host bridge",
    "NODE": "host bridges of one NUMA node",
    "SYS": "between NUMA nodes",
}
_ACS_CAPABILITY = 0x0D
_ACS_REDIRECT = 0x4 | 0x8  # P2P request and completion redirect


@dataclass(frozen=True, slots=True)
class Topology:
    """How GPUs are connected. `links` maps a pair (lower index first) to `NV18`, `PIX`, `SYS` …

    `peer_access` maps pairs to whether reading peer memory works; {} when it is not known.
    """

    gpus: int
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    numa: Mapping[int, str] = field(default_factory=dict)
    peer_access: Mapping[tuple[int, int], bool] = field(default_factory=dict)

    @property
    def is_nvlink(self) -> bool:
        """True when every pair is connected by NVLink."""
        return bool(self.links) and all(link.startswith("NV") for link in self.links.values())

    @property
    def summary(self) -> str:
        """One line, such as `8 GPUs, PCIe only, farthest pair between NUMA nodes`."""
        if self.gpus < 2 or not self.links:
            return f"{self.gpus} GPU{'s' if self.gpus != 1 else ''}"
        if self.is_nvlink:
            return f"{self.gpus} GPUs, NVLink between all"
        has_nvlink = any(link.startswith("NV") for link in self.links.values())
        farthest = max(self.links.values(), key=_distance)
        kind = "NVLink between some" if has_nvlink else "PCIe only"
        return f"{self.gpus} GPUs, {kind}, farthest pair {_DISTANCES.get(farthest, farthest)}"


def _distance(link: str) -> int:
    return [*_DISTANCES].index(link) if link in _DISTANCES else -1


def parse_topology(matrix: str, peer_matrix: str = "") -> Topology:
    """The topology in the texts of `nvidia-smi topo -m` and `nvidia-smi topo -p2p r`."""
    columns, rows = _read_matrix(matrix)
    width = len(columns)
    numa = {gpu: cells[width + 1] for gpu, cells in rows.items() if len(cells) > width + 1}
    peers = {pair: text == "OK" for pair, text in _pairs(*_read_matrix(peer_matrix)).items()}
    return Topology(len(rows), _pairs(columns, rows), numa, peers)


def _read_matrix(text: str) -> tuple[list[str], dict[int, list[str]]]:
    """Names of the device columns, and all cells of each GPU's row.

    After the devices, rows hold CPU and NUMA affinity, whose headings consist of two words.
    """
    columns: list[str] = []
    rows: dict[int, list[str]] = {}
    for line in _ANSI.sub("", text).splitlines():
        cells = line.split()
        gpu = _GPU.match(cells[0]) if cells else None
        if gpu and "X" in cells:
            rows[int(gpu[1])] = cells[1:]
        elif gpu and not columns:
            columns = list(itertools.takewhile(lambda cell: cell != "CPU", cells))
    return columns, rows


def _pairs(columns: list[str], rows: Mapping[int, list[str]]) -> dict[tuple[int, int], str]:
    found = {}
    for gpu, cells in rows.items():
        for name, cell in zip(columns, cells, strict=False):
            other = _GPU.match(name)
            if other and gpu < int(other[1]):
                found[gpu, int(other[1])] = cell
    return found


def read_topology() -> Topology:
    """The topology of this machine; no GPUs where nvidia-smi is missing or fails."""
    return parse_topology(_ask("topo", "-m"), _ask("topo", "-p2p", "r"))


def _ask(*arguments: str) -> str:
    try:
        answer = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def peer_hints(topology: Topology, sys: Path = Path("/sys")) -> list[str]:
    """What may make GPU peer access over PCIe slow, hang or give wrong data on this machine."""
    if topology.gpus < 2 or topology.is_nvlink:
        return []
    hints = []
    denied = sorted(pair for pair, ok in topology.peer_access.items() if not ok)
    if denied:
        pairs = ", ".join(f"{a}-{b}" for a, b in denied[:4])
        hints.append(f"peer access is not available between GPUs {pairs}: try NCCL_P2P_DISABLE=1")
    bridges = redirecting_bridges(sys)
    if bridges:
        hints.append(
            f"ACS redirects peer traffic at {len(bridges)} PCIe bridges ({bridges[0]}, …): GPU "
            "peer access may hang or be slow; disable ACS in the firmware or set "
            "NCCL_P2P_DISABLE=1"
        )
    if is_iommu_translating(sys):
        hints.append(
            "an IOMMU translates device memory: GPU peer access may hang; boot with iommu=pt or "
            "set NCCL_P2P_DISABLE=1"
        )
    return hints


def is_iommu_translating(sys: Path = Path("/sys")) -> bool:
    """True when a device group of an IOMMU is in translating (not pass-through) mode."""
    types = (sys / "kernel/iommu_groups").glob("*/type")
    return any(_text(path).strip().startswith("DMA") for path in types)


def redirecting_bridges(sys: Path = Path("/sys")) -> list[str]:
    """PCIe bridges whose ACS sends peer traffic through the root; [] where it may not be read."""
    found = []
    for device in sorted((sys / "bus/pci/devices").glob("*")):
        if _text(device / "class").startswith("0x0604"):
            try:
                config = (device / "config").read_bytes()
            except OSError:
                continue
            if acs_control(config) & _ACS_REDIRECT:
                found.append(device.name)
    return found


def acs_control(config: bytes) -> int:
    """The ACS control register in a device's PCI configuration space; 0 without one."""
    offset = 0x100
    for _ in range(96):  # a well-formed list is shorter; a broken one must not loop
        if not 0x100 <= offset <= len(config) - 8:
            return 0
        (header,) = struct.unpack_from("<I", config, offset)
        if header & 0xFFFF == _ACS_CAPABILITY:
            return int(struct.unpack_from("<H", config, offset + 6)[0])
        offset = header >> 20
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
