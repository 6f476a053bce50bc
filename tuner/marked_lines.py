"""Owns finding a program's answer among whatever else it printed: what follows the last marker."""

from __future__ import annotations

import json
from typing import Any


def marked_json(output: str, marker: str) -> Any:
    """What follows the marker on the last line that holds it; None without one, or where it is no
    JSON."""
    for line in reversed(output.splitlines()):
        _, found, text = line.partition(marker)
        if found:
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                return None
    return None
