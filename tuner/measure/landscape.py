"""Owns `Landscape`: a table of servers with everything each of their launches showed.

A landscape answers what a launch would have shown without launching anything; it is recorded
from real launches or generated from published figures, and says which. Knows no engine and no
study. Its JSON form is here, the CSV forms are in landscape_csv.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from tuner.args import ServerArgs
from tuner.errors import UsageError

Origin: TypeAlias = Literal["recorded", "generated"]
FORMAT = "tuner landscape 1"

FASTEST_OF = 3
"""Launches of a server from which on its fastest blocks are its true speed. Of two, the faster one
is as often lucky as the slower one is disturbed: clocks are raised for a while, too."""


@dataclass(frozen=True, slots=True)
class RecordedBlock:
    """One block (or one prompt) of a launch at one load point.

    Args:
        tokens: output tokens; seconds: the wall time they took.
        requests: how many requests they belong to.
        drafted, accepted, steps: the server's counters; None: not reported.
        ttft_ms: mean time to first token; None: not reported.
    """

    tokens: float
    seconds: float
    requests: int = 1
    drafted: float | None = None
    accepted: float | None = None
    steps: float | None = None
    ttft_ms: float | None = None


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """One launch: blocks by load label, or a failure; `launch_s` is the time to readiness."""

    blocks: Mapping[str, tuple[RecordedBlock, ...]] = field(default_factory=dict)
    launch_s: float = 0.0
    failure: str = ""
    reason: str = ""
    per_position: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedServer:
    """One distinct server and its launches; `is_baseline`: speculation off."""

    args: ServerArgs
    launches: tuple[RecordedLaunch, ...]
    is_baseline: bool = False

    @property
    def works(self) -> bool:
        """True when at least one launch was measured."""
        return any(launch.blocks for launch in self.launches)


@dataclass(frozen=True, slots=True)
class Landscape:
    """Servers of one space on one host with one workload.

    Args:
        name: of the table.
        origin: recorded from real launches, or generated.
        note: where the numbers come from, for people.
        drafts_by: who drafts: a "model" or a "lookup".
    """

    name: str
    servers: tuple[RecordedServer, ...]
    origin: Origin = "recorded"
    note: str = ""
    drafts_by: Literal["model", "lookup"] = "model"
    prompts: tuple[str, ...] = ()

    @property
    def baseline(self) -> RecordedServer:
        """The server without speculation; raises UsageError when there is none that works."""
        for server in self.servers:
            if server.is_baseline and server.works:
                return server
        raise UsageError(
            f"landscape {self.name}: must hold a server without speculation, got none.",
            "Record the baseline too, or mark it with the column `baseline`.",
        )

    @property
    def loads(self) -> tuple[str, ...]:
        """Labels of the load points, in order."""
        return tuple(next(launch.blocks for launch in self.baseline.launches if launch.blocks))

    def speed(self, server: RecordedServer, load: str) -> float:
        """The server's true speed in tokens per second, as well as its launches tell it.

        Per block, the fastest of FASTEST_OF launches or more counts: disturbance slows a server
        down, and the fastest of a few is far steadier than the mean. Of fewer, the geometric mean
        counts: one fast launch would be believed against the other. NaN for a server that never
        worked.
        """
        return speed_of(server, load, is_fastest=self.is_repeated(load))

    def is_repeated(self, load: str) -> bool:
        """True when servers were launched often enough for the fastest launch to be the truth.

        Asked of the whole table, so that all its servers are judged alike.
        """
        counts = [sum(load in each.blocks for each in s.launches) for s in self.servers if s.works]
        return bool(counts) and float(np.median(counts)) >= FASTEST_OF

    def ratios(self, load: str) -> list[float]:
        """True speed of every server over the baseline's; NaN where it never worked."""
        base = self.speed(self.baseline, load)
        return [self.speed(server, load) / base for server in self.servers]

    def noise(self, load: str) -> float:
        """Typical relative difference between launches of one server (standard deviation)."""
        spreads = []
        for server in self.servers:
            sums = [
                sum(b.seconds for b in launch.blocks[load])
                for launch in server.launches
                if load in launch.blocks
            ]
            if len(sums) > 1:
                spreads.append(float(np.std(np.log(sums), ddof=1)))
        return float(np.median(spreads)) if spreads else 0.0


def speed_of(server: RecordedServer, load: str, *, is_fastest: bool) -> float:
    """Tokens per second by the fastest launch of each block, or by their geometric mean."""
    launches = [launch.blocks[load] for launch in server.launches if load in launch.blocks]
    if not launches:
        return float("nan")
    tokens = np.array([[block.tokens for block in blocks] for blocks in launches])
    seconds = np.array([[block.seconds for block in blocks] for blocks in launches])
    paces = np.log(seconds / tokens)
    usual = paces.min(axis=0) if is_fastest else paces.mean(axis=0)
    counted = tokens.mean(axis=0)
    return float(counted.sum() / (counted @ np.exp(usual)))


LOOKUPS = ("ngram", "suffix", "lookup")
"""Words in the name of a method that looks its drafts up instead of computing them."""


def drafts_by(servers: Iterable[ServerArgs]) -> Literal["model", "lookup"]:
    """Who drafts in a table of servers, by the names of their methods."""
    texts = [
        json.dumps(value).lower()
        for args in servers
        for name, value in args.flags.items()
        if any(part in name for part in ("spec", "type", "method"))
    ]
    return "lookup" if any(word in text for text in texts for word in LOOKUPS) else "model"


# ---- JSON ------------------------------------------------------------------------------------
def landscape_json(landscape: Landscape) -> dict[str, Any]:
    """A landscape as plain JSON."""
    return {
        "format": FORMAT,
        "name": landscape.name,
        "origin": landscape.origin,
        "note": landscape.note,
        "drafts_by": landscape.drafts_by,
        "prompts": list(landscape.prompts),
        "servers": [
            {
                **server.args.to_json(),
                "baseline": server.is_baseline,
                "launches": [_launch_json(launch) for launch in server.launches],
            }
            for server in landscape.servers
        ],
    }


def landscape_text(landscape: Landscape) -> str:
    """A landscape as the text of its file: one server per line, so that changes can be read."""
    data = landscape_json(landscape)
    servers = [json.dumps(server, separators=(",", ":")) for server in data.pop("servers")]
    head = json.dumps(data, indent=1).removesuffix("\n}")
    return head + ',\n "servers": [\n' + ",\n".join(servers) + "\n ]\n}\n"


def _launch_json(launch: RecordedLaunch) -> dict[str, Any]:
    """Blocks as rows of numbers in the order of their fields: the tables are large."""
    rows = {
        label: [[_short(value) for value in asdict(block).values()] for block in blocks]
        for label, blocks in launch.blocks.items()
    }
    found: dict[str, Any] = {"blocks": rows, "launch_s": _short(launch.launch_s)}
    if launch.failure:
        found |= {"failure": launch.failure, "reason": launch.reason}
    if launch.per_position:
        found["per_position"] = [_short(value) for value in launch.per_position]
    return found


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def landscape_from_json(data: Mapping[str, Any]) -> Landscape:
    """Inverse of `landscape_json`; raises KeyError, TypeError or ValueError for anything else."""
    if data["format"] != FORMAT:
        raise ValueError(f"format must be {FORMAT!r}, got {data['format']!r}")
    return Landscape(
        name=data["name"],
        servers=tuple(map(_server, data["servers"])),
        origin=data.get("origin", "recorded"),
        note=data.get("note", ""),
        drafts_by=data.get("drafts_by", "model"),
        prompts=tuple(data.get("prompts", ())),
    )


def _server(data: Mapping[str, Any]) -> RecordedServer:
    args = ServerArgs.from_json({"flags": data["flags"], "env": data.get("env", {})})
    launches = tuple(map(_launch, data["launches"]))
    return RecordedServer(args, launches, bool(data.get("baseline")))


def _launch(data: Mapping[str, Any]) -> RecordedLaunch:
    blocks = {
        label: tuple(_block(row) for row in rows) for label, rows in data.get("blocks", {}).items()
    }
    return RecordedLaunch(
        blocks=blocks,
        launch_s=data.get("launch_s") or 0.0,
        failure=data.get("failure", ""),
        reason=data.get("reason", ""),
        per_position=tuple(data.get("per_position", ())),
    )


def _block(row: Sequence[float | None]) -> RecordedBlock:
    tokens, seconds, requests, *rest = row
    if not tokens or not seconds:
        raise ValueError(f"a block must have tokens and seconds above 0, got {row}")
    return RecordedBlock(tokens, seconds, int(requests or 1), *rest)


def read_landscape(path: Path) -> Landscape:
    """The landscape of a `.json` or `.csv` file; raises UsageError for anything else."""
    from tuner.measure.landscape_csv import landscape_from_csv

    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            return landscape_from_json(json.loads(text))
        return landscape_from_csv(path.stem, text)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"engine.landscape: must be a landscape table, got {path} ({error}).",
            "Name a .csv table or a .json file that `tuner record` wrote.",
        ) from error
