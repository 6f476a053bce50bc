"""Owns whether a worker of the server has the variables that were asked for. Pure: it reads text
that others fetched from the running server."""

from __future__ import annotations

from collections.abc import Mapping


def parse_environ(data: str) -> dict[str, str]:
    """The text of /proc/PID/environ (NUL-separated) as a mapping; total on any text."""
    pairs = (entry.partition("=") for entry in data.split("\0") if "=" in entry)
    return {name: value for name, _, value in pairs if name}


def overwritten(asked: Mapping[str, str | None], worker: Mapping[str, str]) -> dict[str, str]:
    """Variables whose value in a worker is not what was asked for: name to the worker's value.

    A variable asked to be absent (None) that the worker has, and one that it lacks (""), count.
    """
    wrong: dict[str, str] = {}
    for name, value in asked.items():
        if value != worker.get(name):
            wrong[name] = worker.get(name, "")
    return wrong
