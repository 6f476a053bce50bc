"""Hundreds of trials with faults of every kind: is anything lost, and does anything grow?

SIMULATED: the servers are the fake server, really launched; one speculative launch in ten has a
fault. Every `--kill-every` trials the tuner itself is killed with SIGKILL and started again.
Printed, per tenth of the run: resident memory, open handles, database size, seconds from one
trial to the next (storing and choosing), and at the end what must hold:

  accounted   every trial is stored, in our tables and in Optuna, with a state
  memory      the last quarter of the longest run holds at most 20 % more than its second quarter
  handles     as many open files at the end as at the start
  database    the last trials take at most twice the space of the first
  choosing    the last trials are chosen in at most twice the time of the first
  left over   no server process and no shared memory of ours

    python -m benchmarks.soak [--trials 500] [--faults 0.10] [--kill-every 125] [--sampler random]
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import psutil

from tuner.config.loader import load_study
from tuner.events import Event, TrialFinished, TrialStarted
from tuner.search.loop import run_study
from tuner.server import procfs
from tuner.server.launch_record import MARKER
from tuner.store.database import open_store
from tuner.store.record import TrialRecord

NAME = "soak"
STEPS = 10
FAULTS: tuple[dict[str, object], ...] = (
    {"exit_code": 1, "exit_log": "RuntimeError: shape mismatch in layer 3"},
    {"exit_code": 1, "exit_log": "torch.OutOfMemoryError: CUDA out of memory."},
    {"exit_code": 2, "exit_log": "error: unrecognized arguments: --spec-steps"},
    {"exit_code": 1, "exit_log": "OSError: [Errno 98] address already in use"},
    {"die_at_request": 3},
    {"die_at_request": 4, "die_signal": "SIGSEGV"},
    {"silent_after": 3},
    {"error_after_tokens": 2},
    {"reject_share": 1.0},
    {"not_found": True},
    {"usage": "missing"},
    {"nan_timings": True},
    {"worker": True, "worker_dies_at_request": 3},
    {"double_fork": True},
    {"surviving_child": True},
    {"shm_leak_bytes": 1 << 20, "die_at_request": 5},
    {"log_flood_bytes": 8 << 20},
    {"load_s": 30.0},
)
STUDY = """
name: soak
engine: {{kind: fake, behaviour: {behaviour}, launch_timeout: 4s}}
space:
  parameters:
    steps: {{flag: spec-steps, int: [1, {steps}]}}
    variant: {{env: SOAK_VARIANT, int: [1, {variants}]}}
workload:
  prompts: {{builtin: mixed}}
  blocks: 2
  block_size: 2
  held_out: 2
  output_tokens: {{max: 4}}
  warm_up: 1
  timeouts: {{first_token: 2s, between_chunks: 2s, request: 5s}}
objective: {{maximize: output_tokens_per_s}}
search: {{sampler: {sampler}, pruner: none, baseline_every: 50, keep_going: true}}
budget: {{launches: {trials}}}
confirm: {{finalists: 1, rounds: 2, max_rounds: 2}}
fidelity: {{compare: "off"}}
"""


@dataclass(frozen=True)
class Reading:
    """The tuner right after a trial."""

    trial: int
    run: int
    memory_mib: float
    handles: int
    database_kib: float
    next_s: float


def behaviour(rate: float) -> str:
    """A healthy fake server of which `rate` of the launches have one of the faults."""
    each = rate / len(FAULTS)
    # Without a baseline a run ends at once, as it should: speculative servers alone have faults.
    when = {"speculative": True, "chance": each}
    overrides = [{"when": when, "then": fault} for fault in FAULTS]
    return json.dumps({"step_ms": 0.5, "answer_tokens": 4, "overrides": overrides})


def write_study(folder: Path, trials: int, rate: float, sampler: str) -> Path:
    """A study of at least as many servers as trials."""
    path = folder / "soak.yaml"
    variants = max(2, -(-trials // STEPS))
    text = STUDY.format(
        behaviour=behaviour(rate), steps=STEPS, variants=variants, sampler=sampler, trials=trials
    )
    path.write_text(text)
    return path


# ---- one run, in a process of its own ---------------------------------------------------
class Recorder:
    """Takes a reading after each trial, and kills this process after `kill_after` of them."""

    def __init__(self, run: int, out: Path, database: Path, kill_after: int) -> None:
        self.run, self.out, self.database = run, out, database
        self.left = kill_after
        self.me = psutil.Process()
        self.finished_at = time.monotonic()
        self.finished: TrialFinished | None = None

    def __call__(self, event: Event) -> None:
        """Note the end of a trial and the start of the next."""
        if isinstance(event, TrialFinished):
            self.finished, self.finished_at = event, time.monotonic()
        elif isinstance(event, TrialStarted):
            if self.finished is not None:
                self.read(self.finished.number, time.monotonic() - self.finished_at)
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGKILL)

    def read(self, trial: int, next_s: float) -> None:
        """Append one reading."""
        files = (self.database, self.database.with_name(self.database.name + "-wal"))
        size = sum(path.stat().st_size for path in files if path.exists())
        memory = self.me.memory_info().rss / 2**20
        reading = Reading(trial, self.run, memory, self.me.num_fds(), size / 2**10, next_s)
        with self.out.open("a") as out:
            out.write(json.dumps(asdict(reading)) + "\n")


def run_once(study: Path, run: int, kill_after: int) -> int:
    """Go on with the study in this process."""
    folder = study.parent
    database = folder / "results" / NAME / "study.db"
    run_study(load_study(study), observer=Recorder(run, folder / "readings", database, kill_after))
    return 0


# ---- the whole soak -------------------------------------------------------------------
def soak(study: Path, kill_every: int) -> tuple[list[Reading], int]:
    """Run to the end, killed now and then; the readings and how often it was killed."""
    kills = 0
    while True:
        command = [sys.executable, "-m", "benchmarks.soak", "--continue", str(study)]
        command += ["--run", str(kills), "--kill-every", str(kill_every)]
        code = subprocess.run(command, cwd=study.parent, check=False, env=environment()).returncode
        if code == 0:
            break
        if code != -signal.SIGKILL:
            raise SystemExit(f"run {kills} ended with {code}")
        kills += 1
    lines = (study.parent / "readings").read_text().splitlines()
    return [Reading(**json.loads(line)) for line in lines], kills


def environment() -> dict[str, str]:
    """Ours, with this checkout first on the path."""
    import os

    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def stored(folder: Path) -> tuple[list[TrialRecord], list[str], str]:
    """Our records, Optuna's states in order of number, and what SQLite says of the file."""
    url = f"sqlite:///{folder}/results/{NAME}/study.db"
    with open_store(url, create=False) as store:
        number = store.optuna_storage.get_study_id_from_name(NAME)
        trials = store.optuna_storage.get_all_trials(number, deepcopy=False)
        return store.trials(NAME), [trial.state.name for trial in trials], store.integrity()


def left_over() -> list[str]:
    """Processes of the study's servers that still run."""
    found = []
    for stat in procfs.all_processes():
        marker = (procfs.read_environ(stat.id.pid) or {}).get(MARKER, "")
        if stat.is_alive and marker.startswith(f"{NAME}:"):
            found.append(f"{stat.id.pid} {marker}")
    return found


def verdicts(
    readings: Sequence[Reading], records: Sequence[TrialRecord], states: Sequence[str]
) -> dict[str, bool]:
    """What must hold."""
    runs = Counter(reading.run for reading in readings)
    longest = [r for r in readings if r.run == runs.most_common(1)[0][0]]
    quarter = max(1, len(longest) // 4)
    early, late = longest[quarter : 2 * quarter], longest[-quarter:]
    tenth = max(2, len(readings) // 10)
    growth = [r.database_kib for r in readings]
    first, last = growth[2 * tenth] - growth[tenth], growth[-1] - growth[-tenth - 1]
    chosen = [r.next_s for r in readings]
    ended = [state for state in states if state != "WAITING"]  # queued when the budget ended
    return {
        "accounted": [r.number for r in records] == list(range(len(ended)))
        and "RUNNING" not in ended,
        "memory": mean(r.memory_mib for r in late) <= 1.2 * mean(r.memory_mib for r in early),
        "handles": late[-1].handles <= early[0].handles + 2,
        "database": last <= 2.0 * max(first, 64.0),
        "choosing": median(chosen[-tenth:]) <= 2.0 * max(median(chosen[:tenth]), 0.02),
        "left over": not left_over(),
    }


def mean(values: object) -> float:
    """The arithmetic mean."""
    numbers = list(values)  # type: ignore[call-overload]
    return float(sum(numbers) / len(numbers))


def show(readings: Sequence[Reading]) -> None:
    """A line per tenth of the run."""
    print(f"{'trials':>12} {'memory MiB':>11} {'handles':>8} {'database KiB':>13} {'next s':>8}")
    size = max(1, len(readings) // 10)
    for start in range(0, len(readings), size):
        part = readings[start : start + size]
        span = f"{part[0].trial}-{part[-1].trial}"
        print(
            f"{span:>12} {mean(r.memory_mib for r in part):11.1f} {part[-1].handles:8d} "
            f"{part[-1].database_kib:13.0f} {median(r.next_s for r in part):8.3f}"
        )


def main() -> int:
    """Run the soak and print what it found; 1 when something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--faults", type=float, default=0.10)
    parser.add_argument("--kill-every", type=int, default=125)
    parser.add_argument("--sampler", default="random")
    parser.add_argument("--continue", dest="study", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.study is not None:
        return run_once(asked.study, asked.run, asked.kill_every)
    started = time.monotonic()
    with TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        study = write_study(folder, asked.trials, asked.faults, asked.sampler)
        readings, kills = soak(study, asked.kill_every)
        records, states, integrity = stored(folder)
        held = verdicts(readings, records, states) | {"sound file": integrity == "ok"}
    print("SIMULATED: the fake server, really launched")
    show(readings)
    seconds = time.monotonic() - started
    failures = Counter(r.failure for r in records if r.failure)
    print(f"{len(records)} trials in {seconds:.0f} s, the tuner killed {kills} times")
    print(f"states {dict(Counter(r.state for r in records))}, failures {dict(failures)}")
    for name, is_held in held.items():
        print(f"{name:<12} {'holds' if is_held else 'DOES NOT HOLD'}")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
