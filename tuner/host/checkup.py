"""Owns what `tuner doctor` says of the machine: readings go in, verdicts with a remedy come out.

Every function is pure; who takes the readings is not known here. Knows no study and no engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.host.gpus import Gpu, GpuReading
from tuner.host.load import ForeignLoad
from tuner.host.topology import Topology
from tuner.units import size

State = Literal["ok", "warn", "fail"]
"""`warn` makes results doubtful or a study slow; `fail` keeps a study from running."""

_MIB = 1 << 20
_GIB = 1 << 30
_HELD = 1 * _GIB
"""GPU memory beyond which somebody is using a GPU; a driver alone takes some hundred MiB."""

OLDEST = (3, 11)


@dataclass(frozen=True, slots=True)
class Check:
    """One verdict: what was looked at, what was found, what to do."""

    name: str
    state: State
    detail: str
    hint: str = ""

    def to_json(self) -> dict[str, object]:
        """The document of one check; `ok` is false only for a failure."""
        return {
            "name": self.name,
            "ok": self.state != "fail",
            "state": self.state,
            "detail": self.detail,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class Need:
    """How much of something must be free: below `fail` nothing starts, below `warn` it may not."""

    name: str
    fail: int
    warn: int
    hint: str


MEMORY = Need("memory", 256 * _MIB, 2 * _GIB, "End processes that hold host memory.")
SHARED_MEMORY = Need(
    "shared memory", 64 * _MIB, 1 * _GIB,
    "Remove left-over segments from /dev/shm; in a container raise --shm-size to 16g or more.",
)  # fmt: skip
DISK = Need("disk", 64 * _MIB, 2 * _GIB, "Free space on the disk that holds results/.")


def check_python(version: tuple[int, int, int]) -> Check:
    """The interpreter that runs the tuner."""
    text = ".".join(map(str, version))
    if version[:2] < OLDEST:
        return Check(
            "python", "fail", f"must be 3.11 or newer, got {text}", "Install Python 3.11."
        )
    return Check("python", "ok", text)


def check_free(need: Need, free: int | None) -> Check:
    """Free bytes of memory, shared memory or disk; None: the machine has none such."""
    if free is None:
        return Check(need.name, "warn", "there is none", need.hint)
    detail = f"{size(free)} free"
    if free < need.fail:
        return Check(need.name, "fail", f"{detail}, {size(need.fail)} are needed", need.hint)
    if free < need.warn:
        return Check(need.name, "warn", f"{detail}, {size(need.warn)} are better", need.hint)
    return Check(need.name, "ok", detail)


def check_gpus(gpus: Sequence[Gpu], *, are_needed: bool, has_nvml: bool) -> Iterator[Check]:
    """Which GPUs there are, their driver, and whether they can be watched."""
    if not gpus:
        state: State = "warn" if are_needed else "ok"
        hint = "Check nvidia-smi and CUDA_VISIBLE_DEVICES." if are_needed else ""
        yield Check("gpus", state, "no NVIDIA GPU is visible", hint)
        return
    names = [f"{gpu.name}, {size(gpu.memory_bytes)}" for gpu in gpus]
    counted = "; ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    if len(set(names)) > 1:
        hint = "Choose equal ones with execution.gpus."
        yield Check("gpus", "warn", f"{counted}: unequal GPUs", hint)
    else:
        yield Check("gpus", "ok", counted)
    yield Check("driver", "ok", gpus[0].driver or "unknown")
    if not has_nvml:
        yield Check(
            "gpu readings", "warn", "clocks, throttling and memory of the GPUs are not watched",
            "Install: pip install 'speculative-tuner[gpu]'",
        )  # fmt: skip


def check_readings(readings: Sequence[GpuReading]) -> Iterator[Check]:
    """Whether the GPUs are free and run at their own clocks."""
    if not readings:
        return
    held = [reading for reading in readings if reading.memory_used > _HELD]
    if held:
        parts = [f"GPU {r.index} holds {size(r.memory_used)}{_owners(r)}" for r in held]
        yield Check("gpu memory", "warn", "; ".join(parts), "End those processes first.")
    else:
        yield Check("gpu memory", "ok", "free on every GPU")
    slow = [f"GPU {r.index}: {', '.join(r.throttled)}" for r in readings if r.throttled]
    if slow:
        hint = "See nvidia-smi -q -d PERFORMANCE: cooling, power limit or a fixed clock."
        yield Check("gpu clocks", "warn", "; ".join(slow), hint)
    else:
        clocks = [reading.sm_clock_mhz for reading in readings]
        yield Check("gpu clocks", "ok", f"{min(clocks)} to {max(clocks)} MHz, not held back")


def _owners(reading: GpuReading) -> str:
    pids = ", ".join(map(str, sorted(reading.processes)))
    return f" by process {pids}" if pids else ""


def check_topology(topology: Topology, hints: Sequence[str]) -> Iterator[Check]:
    """How the GPUs are connected, and what may break peer access."""
    if topology.gpus < 2:
        return
    yield Check("topology", "ok", topology.summary)
    for hint in hints:
        detail, _, remedy = hint.partition(": ")
        yield Check("peer access", "warn", detail, f"{remedy[:1].upper()}{remedy[1:]}.")
    if not hints and not topology.is_nvlink:
        yield Check("peer access", "ok", "neither ACS nor an IOMMU stands in its way")


def check_governor(governors: Sequence[str]) -> Check:
    """How the kernel chooses the CPU's clocks; [] where it does not say (virtual machines)."""
    kinds = sorted(set(governors))
    if not kinds:
        return Check("cpu clocks", "ok", "not told by this machine")
    if kinds == ["performance"]:
        return Check("cpu clocks", "ok", "governor performance")
    return Check(
        "cpu clocks", "warn", f"governor {', '.join(kinds)}: clocks follow the load",
        "For quiet figures: cpupower frequency-set -g performance.",
    )  # fmt: skip


def check_load(load: ForeignLoad) -> Check:
    """Whether others keep the machine busy."""
    found = load.warnings()
    if found:
        hint = "End it, or measure when the machine is quiet; results would be noise."
        return Check("load", "warn", "; ".join(found), hint)
    busy = load.foreign_cores + load.unseen_cores
    return Check("load", "ok", f"{busy:.1f} of {load.cores} cores busy with others")
