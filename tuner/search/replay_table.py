"""Owns `ReplayTable`: every launch of a landscape as a trial record, without study or store.

For comparing samplers and pruners on thousands of replayed searches; a single study is replayed
by the product's own loop (see replay_runner).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tuner.measure.landscape import (
    Landscape,
    RecordedLaunch,
    RecordedServer,
    read_landscape,
)
from tuner.measure.metrics import summarize
from tuner.measure.records import LoadPoint, Prompt
from tuner.search.bench import ServerRun
from tuner.search.objective import Objective
from tuner.search.recording import counts_at, load_point_record
from tuner.search.replay_runner import acceptance_of, replayed_block, rows_of_block
from tuner.store.record import ArgsRecord, Seconds, TrialRecord

METRIC = "output_tokens_per_s"
PROMPT = (Prompt("recorded", ()),)


@dataclass(slots=True)
class ReplayTable:
    """A landscape ready to be searched: every recorded launch as a trial record."""

    landscape: Landscape
    load: LoadPoint
    objective: Objective = field(init=False)
    truth: dict[str, float] = field(init=False)
    launches: dict[str, list[TrialRecord]] = field(init=False)

    def __post_init__(self) -> None:
        label = self.load.label
        self.objective = Objective(METRIC, True, self.load)
        ratios = self.landscape.ratios(label)
        servers = self.landscape.servers
        self.truth = {s.args.digest: r for s, r in zip(servers, ratios, strict=True)}
        self.launches = {
            s.args.digest: [self._record(s, launch) for launch in s.launches] for s in servers
        }

    @property
    def best(self) -> float:
        """The best true ratio; 1 where the baseline wins."""
        return max(1.0, max(r for r in self.truth.values() if math.isfinite(r)))

    @property
    def baseline(self) -> str:
        """Digest of the baseline."""
        return self.landscape.baseline.args.digest

    def mean_ratio(self, digest: str) -> float:
        """Ratio to the baseline of a server's usual launch: what repeated launches average to,
        where `truth` is what the undisturbed server does."""
        levels = [
            float(np.mean([np.log(self.series(each)) for each in self.launches[name]]))
            for name in (digest, self.baseline)
        ]
        return math.exp(levels[0] - levels[1])

    def _record(self, server: RecordedServer, launch: RecordedLaunch) -> TrialRecord:
        args = ArgsRecord.model_validate(server.args.to_json())
        common: dict[str, Any] = {
            "number": 0,
            "requested_args": args,
            "digest": server.args.digest,
        }
        if launch.failure:
            seconds = Seconds(launch=launch.launch_s, total=launch.launch_s)
            return TrialRecord(
                state="failed", failure=launch.failure, seconds=seconds, **common
            )  # fmt: skip
        run = self._run(launch)
        measurement = summarize(run.blocks, run.acceptance)
        measure = run.blocks[-1].end_s - run.blocks[0].start_s
        return TrialRecord(
            state="baseline" if server.is_baseline else "complete",
            value=self.objective.value(measurement),
            acceptance_per_position=list(launch.per_position),
            load_points=[
                load_point_record(each, counts_at(run, each.load))
                for each in measurement.summaries
            ],
            seconds=Seconds(
                launch=launch.launch_s, measure=measure, total=launch.launch_s + measure
            ),
            **common,
        )

    def _run(self, launch: RecordedLaunch) -> ServerRun:
        rows = launch.blocks[self.load.label]
        run, clock = ServerRun(), 0.0
        for index in range(len(rows)):
            chosen = rows_of_block(rows, index, len(rows))
            block = replayed_block(index, self.load, PROMPT, chosen, clock)
            clock = block.end_s
            run.blocks.append(block)
            counted = acceptance_of(chosen)
            if counted is not None:
                run.block_acceptance[self.load, index] = counted
        return run

    def launch(
        self,
        digest: str,
        params: Mapping[str, Any],
        known: Sequence[TrialRecord],
        draw: random.Random,
    ) -> TrialRecord:
        """One noisy launch of a server, compared with the baselines known so far."""
        made = draw.choice(self.launches[digest])
        if made.state == "failed":
            return made.model_copy(update={"params": dict(params), "number": len(known)})
        base = [r for r in known if r.state == "baseline"] or [made]
        series = [self.series(record) for record in base]
        pooled = np.exp(np.mean(np.log(np.array(series)), axis=0))
        ratio = self.objective.ratio(self.series(made), tuple(pooled))
        return made.model_copy(
            update={"params": dict(params), "vs_baseline": ratio, "number": len(known)}
        )

    def series(self, record: TrialRecord) -> list[float]:
        """The objective per block of a launch."""
        return record.load_points[0].per_block[METRIC]


def tables_of(paths: Iterable[Path]) -> list[ReplayTable]:
    """Every landscape at its first load point; raises UsageError."""
    found = []
    for path in paths:
        landscape = read_landscape(path)
        label = landscape.loads[0]
        is_closed = label[:1] == "c" and label[1:].isdigit()
        load = LoadPoint(concurrency=int(label[1:])) if is_closed else LoadPoint(concurrency=1)
        found.append(ReplayTable(landscape, load))
    return found
