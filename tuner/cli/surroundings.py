"""Owns what `tuner init` finds on this machine: the engine, the GPUs, how they are connected."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.host.gpus import list_gpus
from tuner.host.topology import Topology, read_topology
from tuner.search.placement import world_size

NCCL_ENGINES = ("sglang", "vllm")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The engine that seems to be used here, and the GPUs."""

    engine: str
    gpus: int = 0
    topology: Topology | None = None

    @property
    def tp(self) -> int:
        """The largest power of two of GPUs: attention heads divide by nothing else."""
        size = 1
        while size * 2 <= self.gpus:
            size *= 2
        return size

    def spaces_for(self, engine: str, args: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """Shipped spaces that are worth searching beside the engine's flags, and why."""
        width = world_size(args) or 1
        if engine not in NCCL_ENGINES or width < 2 or self.topology is None:
            return ()
        if self.topology.gpus < 2 or self.topology.is_nvlink:
            return ()  # linked GPUs reduce small messages without NCCL
        return (("shipped:nccl-pcie.yaml", f"{self.topology.summary}: how they reduce matters"),)


def look_around(which: Callable[[str], str | None] = shutil.which) -> Surroundings:
    """What is installed and connected here; starts nothing but nvidia-smi."""
    gpus = len(list_gpus())
    topology = read_topology() if gpus > 1 else None
    return Surroundings(_engine(gpus, which), gpus, topology)


def _engine(gpus: int, which: Callable[[str], str | None]) -> str:
    if which("sglang"):
        return "sglang"
    if which("vllm"):
        return "vllm"
    return "sglang" if gpus and not which("llama-server") else "llamacpp"
