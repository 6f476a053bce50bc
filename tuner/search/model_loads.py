"""Owns stored trials as the model of several loads sees them, and what it says of every server.

Loads are numbers of requests at once; a load given as a rate has no such number and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.model.drafting import Played
from tuner.model.gaussian import Array
from tuner.model.loads import LoadedLaunch, SharedLoads
from tuner.model.observation import BASELINE, Designs
from tuner.search.model_data import count_rows, gain_of
from tuner.store.record import TrialRecord


@dataclass(frozen=True, slots=True)
class Fleet:
    """Every server of a search: its row by digest, and what the rows mean."""

    servers: Mapping[str, int]
    designs: Designs


def requests_at_once(load: str) -> float | None:
    """Of a load's label; None for a rate or a trace."""
    match = re.fullmatch(r"c(\d+)", load)
    return float(match[1]) if match and int(match[1]) else None


def loaded_launches(records: Sequence[TrialRecord], fleet: Fleet) -> list[LoadedLaunch]:
    """Every measured launch at each of its loads, the baseline's among them."""
    found = []
    for record in records:
        server = BASELINE if record.state == "baseline" else fleet.servers.get(record.digest)
        if server is None or gain_of(record) is None:
            continue
        nodes = float(fleet.designs.nodes[server]) if server != BASELINE else 0.0
        blocks = {}
        for point in record.load_points:
            load, table = requests_at_once(point.load), count_rows(point, nodes)
            if load is not None and len(table):
                blocks[load] = table
        if blocks:
            positions = tuple(float(share) for share in record.acceptance_per_position)
            found.append(LoadedLaunch(server, blocks, positions))
    return found


def speeds_at(
    records: Sequence[TrialRecord],
    fleet: Fleet,
    loads: Sequence[float],
    noise: float,
    played: Played | None = None,
) -> dict[float, tuple[Array, Array]]:
    """Log ratio to the baseline of every server at each load, with its standard deviation; {}
    where the baseline's counters are not known. The loads need not have been measured."""
    shared = SharedLoads.fit(fleet.designs, loaded_launches(records, fleet), noise, played)
    return {load: shared.predict(load) for load in loads} if shared else {}
