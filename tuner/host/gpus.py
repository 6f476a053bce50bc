"""Owns what NVIDIA's management library says of the GPUs; without it there are no GPUs.

Everything is read through `GpuSource`, so that tests (and machines without GPUs) need no NVML.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

_MIB = 1 << 20
_QUERY = "index,name,uuid,memory.total,driver_version"
THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
}
"""Bits of NVML's clocks-event reasons that make a GPU slower than its setting."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as installed."""

    index: int
    name: str
    uuid: str
    memory_bytes: int
    driver: str


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one instant. `processes` holds bytes of GPU memory by pid."""

    index: int
    sm_clock_mhz: int
    temperature_c: int
    power_w: float
    memory_used: int
    throttled: tuple[str, ...]
    processes: Mapping[int, int]


class GpuSource(Protocol):
    """Where readings come from."""

    def read(self) -> list[GpuReading]:
        """One reading of every GPU."""
        ...


def list_gpus() -> list[Gpu]:
    """The GPUs of this machine: by NVML, else by nvidia-smi, else none."""
    source = open_nvml()
    if source is not None:
        return source.gpus()
    try:
        answer = subprocess.run(
            ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpu_query(answer.stdout) if answer.returncode == 0 else []


def parse_gpu_query(text: str) -> list[Gpu]:
    """The GPUs in nvidia-smi's CSV (index, name, uuid, MiB, driver); broken lines are skipped."""
    found = []
    for row in csv.reader(io.StringIO(text), skipinitialspace=True):
        with contextlib.suppress(ValueError):
            index, name, uuid, memory, driver = (cell.strip() for cell in row)
            found.append(Gpu(int(index), name, uuid, int(memory) * _MIB, driver))
    return found


class Nvml:
    """NVML by the `nvidia-ml-py` bindings."""

    def __init__(self, bindings: Any) -> None:
        self._nvml = bindings
        count = int(bindings.nvmlDeviceGetCount())
        self._handles = [bindings.nvmlDeviceGetHandleByIndex(i) for i in range(count)]

    def gpus(self) -> list[Gpu]:
        """The GPUs as installed."""
        nvml = self._nvml
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        return [
            Gpu(
                index,
                _text(nvml.nvmlDeviceGetName(handle)),
                _text(nvml.nvmlDeviceGetUUID(handle)),
                int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                driver,
            )
            for index, handle in enumerate(self._handles)
        ]

    def read(self) -> list[GpuReading]:
        """One reading of every GPU; what a GPU does not report is 0 or empty."""
        return [self._read_one(index, handle) for index, handle in enumerate(self._handles)]

    def _read_one(self, index: int, handle: Any) -> GpuReading:
        nvml = self._nvml
        reasons = (
            getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
            or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        )
        bits = int(self._ask(reasons, handle) or 0)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        processes = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        return GpuReading(
            index=index,
            sm_clock_mhz=int(self._ask(nvml.nvmlDeviceGetClockInfo, handle, 1) or 0),
            temperature_c=int(self._ask(nvml.nvmlDeviceGetTemperature, handle, 0) or 0),
            power_w=float(self._ask(nvml.nvmlDeviceGetPowerUsage, handle) or 0) / 1000,
            memory_used=int(memory.used) if memory is not None else 0,
            throttled=tuple(text for bit, text in THROTTLE_REASONS.items() if bits & bit),
            processes={int(p.pid): int(p.usedGpuMemory or 0) for p in processes},
        )

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


def open_nvml() -> Nvml | None:
    """NVML where its bindings and a driver are installed, else None."""
    try:
        bindings = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        bindings.nvmlInit()
        return Nvml(bindings)
    except bindings.NVMLError:
        return None


def await_memory_released(
    before: Mapping[int, int],
    source: GpuSource,
    *,
    timeout_s: float = 60.0,
    tolerance: int = 512 * _MIB,
    pause: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Wait until every GPU holds little more than before a launch; what is still held, in words.

    A killed server's memory is freed by the driver some seconds after its processes are gone.
    """
    waited = 0.0
    while held := _held(before, source.read(), tolerance):
        if waited >= timeout_s:
            break
        pause(0.5)
        waited += 0.5
    return held


def _held(before: Mapping[int, int], now: Sequence[GpuReading], tolerance: int) -> list[str]:
    return [
        f"GPU {gpu.index}: {gpu.memory_used // _MIB} MiB used, {before[gpu.index] // _MIB} MiB "
        f"before the launch, by processes {sorted(gpu.processes) or 'unknown'}"
        for gpu in now
        if gpu.index in before and gpu.memory_used > before[gpu.index] + tolerance
    ]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
