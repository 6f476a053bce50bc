"""Owns stored trials as the model sees them: a launch's counts and seconds, block by block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tuner.measure.records import Acceptance, Block
from tuner.model.gaussian import Array
from tuner.model.observation import (
    ACCEPTED,
    BASELINE,
    DRAFTED,
    SECONDS,
    STEPS,
    TOKENS,
    Observation,
)
from tuner.search.sampling import Ground
from tuner.search.telling import is_config_fault
from tuner.store.record import LoadPointRecord, TrialRecord

COLUMNS = ("tokens", "seconds", "requests", "steps", "drafted", "accepted")

MECHANISTIC = ("output_tokens_per_s", "steady_tokens_per_s", "total_tokens_per_s",
               "requests_per_s", "tpot_", "e2e_", "output_tokens_per_s_per_gpu")  # fmt: skip
"""Metrics that time per token decides; any other is interpolated."""


def block_counts(block: Block, acceptance: Acceptance | None) -> dict[str, float]:
    """What one block counted; counters the engine does not report are NaN."""
    done = [record for record in block.records if record.ok]
    found: dict[str, float] = {
        "tokens": float(sum(record.output_tokens or 0 for record in done)),
        "seconds": block.wall_s,
        "requests": float(len(done)),
        "steps": math.nan,
        "drafted": math.nan,
        "accepted": math.nan,
    }
    if acceptance is not None:
        steps, drafted = acceptance.steps, acceptance.drafted
        found["accepted"] = float(acceptance.accepted)
        found["steps"] = math.nan if steps is None else float(steps)
        found["drafted"] = math.nan if drafted is None else float(drafted)
    return found


def observations_of(
    records: Sequence[TrialRecord], servers: Mapping[str, int], ground: Ground, nodes: Array
) -> list[Observation]:
    """Every measured launch that the model can use, the baseline's among them.

    Where seconds per token do not decide the objective, counters are left out. Seconds are those
    of the machine at its usual level, where it drifted.

    Args:
        records: finished trials.
        servers: row of each server by its digest.
        ground: the objective's metric and load.
        nodes: verified tokens per draft of each server.
    """
    is_counted = not ground.metric or ground.metric.startswith(MECHANISTIC)
    found = []
    for record in records:
        server = BASELINE if record.state == "baseline" else servers.get(record.digest)
        if server is None or gain_of(record) is None:
            continue
        point = record.at(ground.load)
        blocks = np.empty((0, 6))
        if point is not None and is_counted:
            blocks = count_rows(point, float(nodes[server]) if server != BASELINE else 0.0)
            blocks[:, SECONDS] *= 1.0 + (record.drift or 0.0)
        positions = tuple(float(share) for share in record.acceptance_per_position)
        found.append(Observation(server, gain_of(record) or 0.0, blocks, positions))
    return found


def earlier_observations(
    servers: Mapping[str, int], ground: Ground, nodes: Array
) -> list[Observation]:
    """Launches of earlier studies as the model may believe them: without counters only those
    that carry over whole."""
    found = []
    for each in ground.earlier:
        for seen in observations_of([each.record], servers, ground, nodes):
            is_whole = each.tells_acceptance and each.tells_costs
            is_baseline = seen.server == BASELINE
            if not (each.tells_costs if is_baseline else is_whole or seen.is_counted):
                continue
            found.append(
                replace(
                    seen,
                    gain=seen.gain if is_whole else math.nan,
                    tells_acceptance=each.tells_acceptance,
                    tells_costs=each.tells_costs,
                )
            )
    return found


def count_rows(point: LoadPointRecord, nodes: float) -> Array:
    """One row per block. Every pass of the target gives one token beside the accepted ones, so
    passes = tokens - accepted, whatever an engine calls a step."""
    counts = point.block_counts
    if not counts:
        return np.empty((0, 6))
    table = np.array([counts[name] for name in COLUMNS], dtype=float).T
    drafts = table[:, STEPS] * nodes
    table[:, DRAFTED] = np.where(np.isnan(table[:, DRAFTED]), drafts, table[:, DRAFTED])
    table[:, STEPS] = np.maximum(1.0, table[:, TOKENS] - table[:, ACCEPTED])
    return table[(table[:, TOKENS] > 0) & (table[:, SECONDS] > 0)]


def gain_of(record: TrialRecord) -> float | None:
    """Log ratio to the baseline; None where nothing was measured."""
    ratio = record.vs_baseline
    if record.state not in ("baseline", "complete", "pruned") or not ratio or ratio <= 0:
        return None
    return math.log(ratio)


def failed_servers(records: Sequence[TrialRecord], servers: Mapping[str, int]) -> list[int]:
    """Rows of servers that failed by their own fault."""
    return [
        servers[record.digest]
        for record in records
        if record.digest in servers and record.state == "failed" and is_config_fault(record)
    ]


def broken_servers(records: Sequence[TrialRecord], servers: Mapping[str, int]) -> list[int]:
    """Rows of measured servers that broke an outcome constraint."""
    return [
        servers[record.digest]
        for record in records
        if record.digest in servers and any(value > 0 for value in record.constraints.values())
    ]
