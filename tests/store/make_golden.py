"""Makes golden/schema_N.sql: a database as the tuner with schema version N leaves it.

Run once per released version, with that version checked out, and commit the file:

    python tests/store/make_golden.py
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import optuna

from tuner.measure.records import Block, LoadPoint, RequestRecord
from tuner.store.database import StudyMeta, open_store
from tuner.store.record import (
    ArgsRecord,
    ConfirmationLaunch,
    LoadPointRecord,
    RecommendationRecord,
    Seconds,
    TrialRecord,
)
from tuner.store.tables import SCHEMA_VERSION

GOLDEN = Path(__file__).parent / "golden"


def block() -> Block:
    request = RequestRecord(
        "p1", "chat", 0.0, 0.0, 0.25, 0.75, 1.0, (0.25, 0.75), 9, 5, 0, "stop", "", "an answer"
    )
    return Block(0, LoadPoint(concurrency=1), 0.0, 1.0, (request,))


def trials() -> list[TrialRecord]:
    point = LoadPointRecord(load="c1", metrics={"output_tokens_per_s": 5.0})
    launch = Seconds(launch=1.0, measure=1.0, total=2.0)
    return [
        TrialRecord(number=0, state="baseline", value=5.0, seconds=launch, load_points=[point]),
        TrialRecord(
            number=1, state="complete", value=7.0, vs_baseline=1.4, params={"steps": 3},
            requested_args=ArgsRecord(flags={"steps": 3}), digest="d1", seconds=launch,
        ),
        TrialRecord(number=2, state="failed", failure="out_of_memory", reason="CUDA"),
    ]  # fmt: skip


def fill(url: str) -> None:
    with open_store(url, create=True) as store:
        meta = StudyMeta("golden", "golden", 1, "2026-12-01T00:00:00+00:00", {"uid": "u1"})
        store.save_study_meta(meta)
        study = optuna.create_study(
            study_name="golden", storage=store.optuna_storage, direction="maximize"
        )
        for record in trials():
            store.save_trial("golden", record, [block()] if record.value else [])
            study.add_trial(optuna.trial.create_trial(value=record.value or 0.0))
        store.save_confirmation(
            "golden",
            ConfirmationLaunch(round=0, order=0, trial=1, digest="d1", value=7.0),
            [block()],
        )
        store.save_recommendation(
            "golden", RecommendationRecord(verdict="use", trial=1, ratio=1.4, low=1.3, high=1.5)
        )
        store.save_fingerprint("f1", {"host": "golden-host"})


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        fill(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as connection:
            text = "\n".join(connection.iterdump())
    (GOLDEN / f"schema_{SCHEMA_VERSION}.sql").write_text(text + "\n")


if __name__ == "__main__":
    main()
