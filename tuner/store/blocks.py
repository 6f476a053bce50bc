"""Owns the stored form of measured blocks: one JSON object per line, requests with their text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tuner.measure.records import Block, LoadPoint, RequestRecord
from tuner.store.plain import dump_json


def block_to_json(block: Block) -> dict[str, Any]:
    """A block as plain values, every request in full."""
    return {
        "index": block.index,
        "load": asdict(block.load),
        "start_s": block.start_s,
        "end_s": block.end_s,
        "client_cpu_s": block.client_cpu_s,
        "client_lag_s": block.client_lag_s,
        "peak_in_flight": block.peak_in_flight,
        "is_client_bound": block.is_client_bound,
        "gpus": [dict(gpu) for gpu in block.gpus],
        "notes": list(block.notes),
        "records": [asdict(record) for record in block.records],
    }


def block_from_json(data: Mapping[str, Any]) -> Block:
    """Inverse of `block_to_json`; raises KeyError or TypeError for anything else."""
    return Block(
        index=data["index"],
        load=LoadPoint(**data["load"]),
        start_s=data["start_s"],
        end_s=data["end_s"],
        records=tuple(request_from_json(item) for item in data["records"]),
        client_cpu_s=data.get("client_cpu_s", 0.0),
        client_lag_s=data.get("client_lag_s", 0.0),
        peak_in_flight=data.get("peak_in_flight", 0),
        is_client_bound=data.get("is_client_bound", False),
        gpus=tuple(data.get("gpus", ())),
        notes=tuple(data.get("notes", ())),
    )


def request_from_json(data: Mapping[str, Any]) -> RequestRecord:
    """One request from its plain values."""
    return RequestRecord(**{**data, "chunk_s": tuple(data["chunk_s"])})


def blocks_to_lines(blocks: Sequence[Block]) -> str:
    """JSON lines of several blocks."""
    return "".join(dump_json(block_to_json(block)) + "\n" for block in blocks)


def blocks_from_lines(text: str) -> list[Block]:
    """Inverse of `blocks_to_lines`."""
    return [block_from_json(json.loads(line)) for line in text.split("\n") if line]
