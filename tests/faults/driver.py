"""Runs a study and does something to this very process when a chosen event comes.

    python driver.py STUDY [--at EVENT[:KEY=VALUE…] --do ACTION] [--new] [--worker]

ACTION: SIGKILL, SIGTERM, SIGINT or SIGINTx2 (signals to itself); small-files (no file may grow
beyond 4 KiB from then on: a full disk); remove:PATH (deletes a file or folder); write:PATH=TEXT.
It prints each event's name and ends with the exit code of `tuner run`.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tuner import events
from tuner.config.loader import load_study
from tuner.errors import TunerError
from tuner.search.loop import join_study, run_study


def matches(event: events.Event, wanted: str) -> bool:
    name, _, conditions = wanted.partition(":")
    pairs = [pair.split("=") for pair in conditions.split(",") if pair]
    fields = all(str(getattr(event, key, None)) == value for key, value in pairs)
    return type(event).__name__ == name and fields


def do(action: str) -> None:
    if action == "small-files":
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    elif action.startswith("remove:"):
        path = Path(action.partition(":")[2])
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif action.startswith("write:"):
        path, _, text = action.removeprefix("write:").partition("=")
        Path(path).write_text(text)
    else:
        name, _, times = action.partition("x")
        for _ in range(int(times or 1)):
            os.kill(os.getpid(), getattr(signal, name))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("study", type=Path)
    parser.add_argument("--at", default="")
    parser.add_argument("--do", default="")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--worker", action="store_true")
    asked = parser.parse_args()
    pending = [asked.at] if asked.at else []

    def observe(event: events.Event) -> None:
        print(type(event).__name__, flush=True)
        if pending and matches(event, pending[0]):
            pending.clear()
            do(asked.do)

    try:
        loaded = load_study(asked.study)
        if asked.worker:
            join_study(loaded, observer=observe)
        else:
            run_study(loaded, observer=observe, new=asked.new)
    except TunerError as error:
        print(f"{type(error).__name__}: {error.message}\n  {error.hint}", flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
