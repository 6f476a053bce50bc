"""Owns launches that are answered from a landscape: blocks, counters and seconds as recorded.

Time is virtual: a launch of minutes takes none, and its parts are reported as recorded. Which of
a server's recorded launches is served depends on the seed, the server and the trial only, so a
resumed study sees the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.args import ServerArgs
from tuner.errors import FailureKind, TrialFailure, UsageError
from tuner.measure.landscape import Landscape, RecordedBlock, RecordedLaunch, RecordedServer
from tuner.measure.records import Acceptance, Block, LoadPoint, Prompt, RequestRecord
from tuner.search.bench import Bench, LaunchPlan, ServerRun, StopEarly, blocks_at

BASIS = "recorded"


@dataclass(slots=True)
class ReplayRunner:
    """Serves recorded launches; nothing is real but the record."""

    landscape: Landscape
    seed: int = 0
    is_simulated: bool = True
    _servers: dict[str, RecordedServer] = field(init=False)

    def __post_init__(self) -> None:
        self._servers = {server.args.digest: server for server in self.landscape.servers}

    def run(self, bench: Bench, plan: LaunchPlan, run: ServerRun, stop_early: StopEarly) -> None:
        """Fill `run` from one recorded launch of the planned server."""
        run.is_virtual = True
        launch = self.pick(plan.args, plan.label)
        run.spent["launch"] = launch.launch_s
        if launch.failure:
            raise TrialFailure(_kind(launch.failure), launch.reason or "recorded as failed")
        clock = launch.launch_s
        for load in plan.loads:
            rows = self._rows(launch, load)
            for index, prompts in enumerate(plan.blocks):
                chosen = rows_of_block(rows, index, len(plan.blocks))
                block = replayed_block(index, load, prompts, chosen, clock)
                clock = block.end_s
                run.blocks.append(block)
                run.spent["measure"] = run.spent.get("measure", 0.0) + block.wall_s
                _count(run, load, index, chosen)
                if load == bench.objective.load and stop_early(run, load):
                    _pool(run, load, launch, len(rows))
                    return
            _pool(run, load, launch, len(rows))

    def pick(self, args: ServerArgs, label: str) -> RecordedLaunch:
        """One recorded launch of a server; raises TrialFailure when it has none."""
        server = self._servers.get(args.digest)
        if server is None:
            raise TrialFailure(FailureKind.INFEASIBLE, f"not recorded in {self.landscape.name}")
        draw = random.Random(f"{self.seed}:{args.digest}:{label}")
        return draw.choice(server.launches)

    def _rows(self, launch: RecordedLaunch, load: LoadPoint) -> Sequence[RecordedBlock]:
        if load.label not in launch.blocks:
            known = ", ".join(self.landscape.loads)
            raise UsageError(
                f"workload.load: must be recorded in landscape {self.landscape.name}, "
                f"got {load.label}.",
                f"Use what was recorded: {known}.",
            )
        return launch.blocks[load.label]


def _kind(label: str) -> FailureKind:
    try:
        return FailureKind.from_label(label.lower())
    except KeyError:
        return FailureKind.LAUNCH_CRASH


def rows_of_block(rows: Sequence[RecordedBlock], index: int, blocks: int) -> list[RecordedBlock]:
    """The recorded rows that a block of the workload stands for: rows are dealt out evenly, and
    used again where there are fewer rows than blocks."""
    if len(rows) < blocks:
        return [rows[index % len(rows)]]
    parts = np.array_split(np.arange(len(rows)), blocks)
    return [rows[int(row)] for row in parts[index]]


def replayed_block(
    index: int,
    load: LoadPoint,
    prompts: Sequence[Prompt],
    rows: Sequence[RecordedBlock],
    start_s: float,
) -> Block:
    """A block as the client would have recorded it, on the virtual clock."""
    records: list[RequestRecord] = []
    clock = start_s
    lanes = load.concurrency or 1
    for row in rows:
        records += _requests(row, prompts, clock, min(lanes, row.requests))
        clock += row.seconds
    return Block(index, load, start_s, clock, tuple(records), peak_in_flight=lanes)


def _requests(
    row: RecordedBlock, prompts: Sequence[Prompt], start_s: float, lanes: int
) -> list[RequestRecord]:
    """The requests of a recorded row: as many at once as the load had, tokens shared evenly."""
    each = row.seconds * lanes / row.requests
    first = min((row.ttft_ms or 0.0) / 1000.0, each / 2) or each / 20
    edges = np.round(np.linspace(0.0, row.tokens, row.requests + 1)).astype(int)
    found = []
    for place in range(row.requests):
        prompt = prompts[place % len(prompts)]
        sent = start_s + (place // lanes) * each
        end = min(sent + each, start_s + row.seconds)
        found.append(
            RequestRecord(
                prompt_id=prompt.id, category=prompt.category, scheduled_s=sent, sent_s=sent,
                first_s=sent + first, last_s=end, end_s=end, chunk_s=(sent + first, end),
                prompt_tokens=None, output_tokens=int(edges[place + 1] - edges[place]),
                cached_tokens=0, finish_reason="stop", text=f"recorded answer to {prompt.id}",
            )
        )  # fmt: skip
    return found


def _count(run: ServerRun, load: LoadPoint, index: int, rows: Sequence[RecordedBlock]) -> None:
    counted = acceptance_of(rows)
    if counted is not None:
        run.block_acceptance[load, index] = counted


def _pool(run: ServerRun, load: LoadPoint, launch: RecordedLaunch, rows: int) -> None:
    """The acceptance of every row that was served at a load point."""
    blocks = len(blocks_at(run, load))
    served = min(rows, blocks) if blocks else 0
    counted = acceptance_of(launch.blocks[load.label][: served or rows], launch.per_position)
    if counted is not None:
        run.acceptance[load] = counted


def acceptance_of(
    rows: Sequence[RecordedBlock], per_position: Sequence[float] = ()
) -> Acceptance | None:
    """Pooled counters of recorded rows; None where they were not recorded."""
    if any(row.accepted is None or row.steps is None for row in rows):
        return None
    steps = sum(row.steps or 0.0 for row in rows)
    accepted = sum(row.accepted or 0.0 for row in rows)
    has_drafts = all(row.drafted is not None for row in rows)
    drafted = sum(row.drafted or 0.0 for row in rows) if has_drafts else None
    return Acceptance(
        length=1.0 + accepted / max(steps, 1.0),
        rate=accepted / drafted if drafted else None,
        per_position=tuple(per_position),
        steps=round(steps),
        drafted=None if drafted is None else round(drafted),
        accepted=round(accepted),
        basis=BASIS,
    )
