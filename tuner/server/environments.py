"""Owns what became of the environment a server was asked to run with, worker by worker.

Engines set variables themselves between the front process and its workers; what a worker was
started with is what counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EnvironmentDrift:
    """A variable that did not reach a process as asked; None: absent."""

    name: str
    requested: str | None
    effective: str | None
    pid: int

    def __str__(self) -> str:
        return (
            f"{self.name}: asked {self.requested or 'unset'}, process {self.pid} runs with "
            f"{self.effective or 'unset'}"
        )


def environment_drift(
    requested: Mapping[str, str | None], environments: Mapping[int, Mapping[str, str]]
) -> list[EnvironmentDrift]:
    """Where processes of a server run with another environment than asked for.

    Args:
        requested: the variables set, or removed (None), for the launch.
        environments: of each process, by pid (`ServerProcess.environments`). One line per
            variable: the first process that differs stands for all that do.
    """
    found = []
    for name, value in sorted(requested.items()):
        for pid, environment in sorted(environments.items()):
            if environment.get(name) != value:
                found.append(EnvironmentDrift(name, value, environment.get(name), pid))
                break
    return found
