"""Owns what the machine is, in text fields without any host name: CPU, cores, memory, kernel."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

_GIB = 1 << 30


def machine_fields(
    proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")
) -> dict[str, str]:
    """The fields that decide whether two measurements were made on equal machines."""
    return {
        "cpu": cpu_model(proc / "cpuinfo"),
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count() or 1}",
        "cpu_quota": cpu_quota(cgroup / "cpu.max"),
        "memory": f"{round(psutil.virtual_memory().total / _GIB)} GiB",
        "kernel": ".".join(platform.release().split(".")[:2]),
        "architecture": platform.machine(),
    }


def cpu_model(cpuinfo: Path) -> str:
    """The processor's name; the architecture where the kernel gives no name."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return platform.machine()
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    parts = [named.get("model name", platform.machine())]
    if "cpu family" in named:  # clouds hide the name: "Intel(R) Xeon(R) Processor"
        parts.append(f"family {named['cpu family']} model {named.get('model', '?')}")
    return ", ".join(parts)


def cpu_quota(cpu_max: Path) -> str:
    """Cores a container may use, such as `3.5`, or `none`."""
    try:
        quota, period = cpu_max.read_text().split()[:2]
        return "none" if quota == "max" else f"{int(quota) / int(period):g}"
    except (OSError, ValueError, ZeroDivisionError):
        return "none"
