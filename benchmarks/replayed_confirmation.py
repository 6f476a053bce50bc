"""Owns what a study would recommend after a search on a landscape: the product's own finalists,
planned rounds and verdict, with launches replayed instead of made."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.config.study import ConfirmConfig
from tuner.search.confirm import planned_rounds, select_finalists
from tuner.search.history import History
from tuner.search.opinion import opinion
from tuner.search.recommend import Finalist, decide
from tuner.search.replay_table import ReplayTable
from tuner.search.sampling import Suggester
from tuner.store.record import ConfirmationLaunch, FinalistRecord, TrialRecord


@dataclass(frozen=True, slots=True)
class Recommended:
    """True ratio to the baseline of what is recommended (1: the baseline itself), seconds that
    confirming took, whether each finalist's interval holds its true gain, what decided."""

    ratio: float = 1.0
    seconds: float = 0.0
    covered: tuple[bool, ...] = ()
    decided_by: str = ""


def recommend(
    table: ReplayTable, suggester: Suggester, records: Sequence[TrialRecord], draw: random.Random
) -> Recommended:
    """Confirm the best servers of a search as a study does and return the verdict."""
    config = ConfirmConfig()
    history = History(table.objective, list(records))
    said = opinion(suggester, records, table.objective)
    chosen = select_finalists(history, config.finalists, said.expected)
    if not chosen:
        return Recommended()
    rounds = planned_rounds(config, history, chosen, said)
    servers = {0: table.baseline, **{record.number: record.digest for record in chosen}}
    launches = [
        replayed(table, round_, trial, digest, draw)
        for round_ in range(rounds)
        for trial, digest in servers.items()
    ]
    finalists = [Finalist(r.number, r.digest, _complexity(r)) for r in chosen]
    noise = history.launch_noise()
    expected = said.after(launches)
    verdict = decide(table.objective, finalists, launches, {}, noise, expected)
    return Recommended(
        ratio=table.truth[verdict.winner.digest] if verdict.winner else 1.0,
        seconds=sum(launch.seconds.total for launch in launches),
        covered=tuple(_holds(table, each) for each in verdict.finalists),
        decided_by=verdict.decided_by,
    )


def replayed(
    table: ReplayTable, round_: int, trial: int, digest: str, draw: random.Random
) -> ConfirmationLaunch:
    """One recorded launch of a server, drawn anew, as the confirmation would have kept it."""
    made = draw.choice(table.launches[digest])
    return ConfirmationLaunch(
        round=round_,
        order=0,
        trial=trial,
        digest=digest,
        value=made.value,
        per_block=table.series(made) if made.load_points else [],
        block_counts=made.load_points[0].block_counts if made.load_points else {},
        failure=made.failure,
        seconds=made.seconds,
    )


def _complexity(record: TrialRecord) -> float:
    """How much a server drafts: the sum of its numbers stands for an engine's own measure."""
    values = record.requested_args.flags.values()
    return float(sum(v for v in values if isinstance(v, int | float) and v is not True))


def _holds(table: ReplayTable, finalist: FinalistRecord) -> bool:
    return finalist.low <= table.mean_ratio(finalist.digest) <= finalist.high
