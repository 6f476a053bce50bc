"""A short soak: faults of every kind, the tuner killed on the way, everything accounted for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.soak import Reading, behaviour, verdicts, write_study
from tuner.config.loader import load_study
from tuner.store.record import TrialRecord

ROOT = Path(__file__).parents[2]


def test_everything_is_accounted_for_after_faults_and_kills() -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--trials", "10", "--faults", "0.3"]
    done = subprocess.run(
        [*command, "--kill-every", "6"], cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert done.returncode in (0, 1), done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("SIMULATED")
    verdict = {line[:12].strip(): line[13:] for line in lines[-7:]}
    # So short a run says nothing about growth; everything else must hold.
    for name in ("accounted", "handles", "left over", "sound file"):
        assert verdict[name] == "holds", done.stdout


def reading(trial: int, **changes: float) -> Reading:
    values = {"memory_mib": 100.0, "handles": 8, "database_kib": 60.0 * trial, "next_s": 0.1}
    return Reading(trial=trial, run=0, **{**values, **changes})  # type: ignore[arg-type]


def judged(readings: list[Reading]) -> dict[str, bool]:
    records = [TrialRecord(number=0, state="baseline")]
    return verdicts(readings, records, ["COMPLETE"])


def test_growth_is_noticed() -> None:
    steady = [reading(i) for i in range(100)]
    assert all(judged(steady).values())
    leaking = [reading(i, memory_mib=100.0 + i) for i in range(100)]
    assert not judged(leaking)["memory"]
    handles = [reading(i, handles=8 + i) for i in range(100)]
    assert not judged(handles)["handles"]
    square = [reading(i, database_kib=float(i * i)) for i in range(100)]
    assert not judged(square)["database"]
    slower = [reading(i, next_s=0.1 + i / 100) for i in range(100)]
    assert not judged(slower)["choosing"]
    lost = verdicts(steady, [], ["RUNNING"])
    assert not lost["accounted"]


def test_the_study_has_room_for_every_trial(tmp_path: Path) -> None:
    loaded = load_study(write_study(tmp_path, 500, 0.1, "random"))
    values = [len(parameter.values()) for parameter in loaded.parameters.values()]
    assert values == [10, 50]
    assert loaded.config.budget.launches == 500
    assert '"chance": 0.1' in behaviour(1.8)
