"""Owns which devices and CPUs of this machine each server may use: one `Seat` per server.

Knows no process: a seat is only a plan. Servers side by side get disjoint devices and disjoint
physical cores; one server alone gets everything the study allows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.config.study import LocalExecution, StudyConfig
from tuner.errors import UsageError
from tuner.host.gpus import list_gpus
from tuner.search.workers import split_devices

VISIBLE = "CUDA_VISIBLE_DEVICES"
_WIDTH = ("tp-size", "tensor-parallel-size", "tp")
_DEPTH = ("pp-size", "pipeline-parallel-size", "pp")


@dataclass(frozen=True, slots=True)
class Seat:
    """What one server may use; without devices or CPUs it is not restricted.

    Args:
        number: counted from 0.
        devices: GPU numbers as the driver counts them.
        cpus: CPUs of whole physical cores.
    """

    number: int
    devices: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()

    def environment(self) -> dict[str, str]:
        """What shows a server these GPUs alone, counted in the driver's order."""
        if not self.devices:
            return {}
        return {VISIBLE: ",".join(self.devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def needs_seats(execution: LocalExecution) -> bool:
    """True when the study restricts what its servers may use."""
    return execution.parallel > 1 or bool(execution.gpus)


def plan_seats(config: StudyConfig, devices: Sequence[str], cpus: Sequence[int]) -> list[Seat]:
    """One seat per server that runs at the same time.

    Raises:
        UsageError: there are not enough devices, or the study places its servers itself.
    """
    execution = config.execution
    assert isinstance(execution, LocalExecution)
    refuse_own_placement(config)
    each = devices_per_server(config, len(devices))
    shares = split_devices(devices, each, execution.parallel)
    cores = share_cpus(cpus, execution.parallel)
    return [Seat(i, shares[i], cores[i]) for i in range(execution.parallel)]


def refuse_own_placement(config: StudyConfig) -> None:
    """Two masters of one variable; raises UsageError."""
    if VISIBLE in config.engine.env:
        raise UsageError(
            f"engine.env.{VISIBLE}: must be absent when execution places the servers, "
            f"got {config.engine.env[VISIBLE]}.",
            "Write execution.gpus instead.",
        )


def devices_per_server(config: StudyConfig, devices: int) -> int:
    """GPUs of one server: as the study says, as its parallel sizes say, else an equal share."""
    execution = config.execution
    assert isinstance(execution, LocalExecution)
    if not devices:
        return 0
    if execution.gpus_per_server is not None:
        return execution.gpus_per_server
    width = world_size(config.engine.args)
    return width if width is not None else devices // execution.parallel


def world_size(args: Mapping[str, Any]) -> int | None:
    """Tensor times pipeline parallelism in an engine's fixed flags; None when neither is set."""
    sizes = [args[name] for names in (_WIDTH, _DEPTH) for name in names if name in args]
    whole = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool)]
    if not whole:
        return None
    total = 1
    for size in whole:
        total *= size
    return total


def host_devices(execution: LocalExecution, environ: Mapping[str, str]) -> tuple[str, ...]:
    """GPU numbers this study may use, in order.

    Raises:
        UsageError: `gpus` names one that is not there, or that was hidden from us.
    """
    found = tuple(str(gpu.index) for gpu in list_gpus())
    inherited = environ.get(VISIBLE)
    if inherited is not None:
        found = tuple(name.strip() for name in inherited.split(",") if name.strip())
    if execution.gpus is None:
        return found
    wanted = tuple(str(gpu) for gpu in execution.gpus)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise UsageError(
            f"execution.gpus: must name GPUs of this machine ({', '.join(found) or 'none'}), "
            f"got {', '.join(missing)}.",
            "Correct execution.gpus, or leave it out to use all.",
        )
    return wanted


def share_cpus(
    cpus: Sequence[int], shares: int, root: Path = Path("/sys/devices/system/cpu")
) -> list[tuple[int, ...]]:
    """CPUs in so many shares of whole physical cores, neighbours together.

    One share, or fewer cores than shares, restricts nothing: every share is empty then.
    """
    cores = physical_cores(cpus, root)
    each = len(cores) // shares
    if shares == 1 or each == 0:
        return [()] * shares
    parts = [cores[i * each : (i + 1) * each] for i in range(shares)]
    return [tuple(sorted(cpu for core in part for cpu in core)) for part in parts]


def physical_cores(cpus: Sequence[int], root: Path) -> list[tuple[int, ...]]:
    """The allowed CPUs grouped by physical core, package after package."""
    cores: dict[str, list[int]] = {}
    packages: dict[str, int] = {}
    for cpu in sorted(cpus):
        topology = root / f"cpu{cpu}" / "topology"
        siblings = _read(topology / "thread_siblings_list") or str(cpu)
        cores.setdefault(siblings, []).append(cpu)
        packages[siblings] = int(_read(topology / "physical_package_id") or 0)
    ordered = sorted(cores, key=lambda name: (packages[name], cores[name][0]))
    return [tuple(cores[name]) for name in ordered]


def own_cpus() -> list[int]:
    """The CPUs this process may use."""
    return sorted(os.sched_getaffinity(0))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
