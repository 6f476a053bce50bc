"""Predicted beside ran: what-ifs of `tuner explain --simulate` on the bundled llama.cpp server.

    python benchmarks/whatif.py [--rounds 4] [--curves 4] [--model M.gguf] [--draft D.gguf]

For each published acceptance curve the "measured" server accepts after that curve and the lever
is a better draft: half of what is missing to a perfect one. SYNTHETIC: who is accepted is decided
by lot, the clock is real. One row per curve, and the worst disagreement at the end; about five
minutes on an idle machine. The draft comes from benchmarks/layered_draft.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tuner import units
from tuner.args import FlagValue, ServerArgs
from tuner.cli.simulating import NAMES, run_what_if
from tuner.config.engine import LlamacppConfig
from tuner.config.workload import PromptsConfig, WorkloadConfig
from tuner.engines.base import EngineFacts
from tuner.engines.llamacpp.engine import LlamacppEngine
from tuner.engines.synthetic import RATES, with_acceptance
from tuner.events import ignore
from tuner.insight.whatif import WhatIf
from tuner.measure.prompts import build_workload
from tuner.search.bench import Bench
from tuner.search.local_runner import LocalRunner
from tuner.search.objective import Objective
from tuner.search.remeasure import Contender

CURVES: dict[str, tuple[float, ...]] = {
    "EAGLE, Llama-3-8B": (0.58, 0.34, 0.22, 0.15),
    "EAGLE-3, MT-Bench": (0.74, 0.55, 0.41),
    "MTP, one head": (0.69,),
    "EAGLE-3, HumanEval": (0.87, 0.76, 0.66),
    "a poor draft": (0.30, 0.10),
}
"""Acceptance per position as published (docs/how-it-searches.md names the sources)."""

HEAD = f"{'curve':<20}{'depth':>6}{'now':>7}{'asked':>7}{'drawn':>7}{'predicted':>11}"
HEAD += f"{'ran':>7}  {'interval':<14}{'apart':>6}"


def make_bench(model: Path, draft: Path, threads: int, blocks: int, tokens: int) -> Bench:
    """One request at a time, answers of a fixed length, no prompt cache."""
    config = LlamacppConfig(
        kind="llamacpp",
        executable="bundled",
        model=str(model.absolute()),
        draft_model=str(draft.absolute()),
        args={"ctx-size": 1024, "parallel": 1, "threads": threads, "threads-batch": threads},
    )
    prompts = PromptsConfig(builtin="mixed", categories=["chat"])
    section = WorkloadConfig(
        prompts=prompts, blocks=1, block_size=1, held_out=blocks, cache="off", warm_up=1,
        output_tokens={"exactly": tokens},  # type: ignore[arg-type]
    )  # fmt: skip
    workload = build_workload(section, 7)
    return Bench(
        study="whatif-benchmark",
        engine=LlamacppEngine(config),
        facts=EngineFacts(),
        workload=workload,
        objective=Objective("output_tokens_per_s", True, workload.loads[0]),
        launch_timeout_s=120.0,
        observer=ignore,
        runner=LocalRunner(),
    )


def servers(bench: Bench, draft: Path, rates: Sequence[float], length: float) -> list[Contender]:
    """Baseline, the server after a curve, and the same told an acceptance length."""
    flags: dict[str, FlagValue] = {
        "spec-type": "draft-simple",
        "spec-draft-model": str(draft.absolute()),
        "spec-draft-n-max": len(rates),
        RATES: ",".join(f"{rate:g}" for rate in rates),
    }
    measured: ServerArgs = bench.engine.fixed_args().replace(flags)
    told = with_acceptance("llamacpp", measured, length)
    assert told is not None
    made = (bench.engine.without_speculation(measured), measured, told)
    return [
        Contender(n, name, each) for n, (name, each) in enumerate(zip(NAMES, made, strict=True))
    ]


def lever_of(rates: Sequence[float]) -> float:
    """Half of what is missing to a perfect draft, as `tuner explain` asks."""
    now = 1 + sum(rates)
    return round(now + (len(rates) + 1 - now) / 2, 3)


def row(name: str, depth: int, found: WhatIf) -> str:
    """One line of the table."""
    ran = found.ran
    return (
        f"{name:<20}{depth:>6}{found.measured:>7.2f}{found.asked:>7.2f}{found.drawn:>7.2f}"
        f"{units.ratio(found.predicted):>11}{units.ratio(ran.ratio):>7}  "
        f"{units.interval(ran.low, ran.high):<14}{found.off:>6.1%}"
    )


def summary(found: Sequence[WhatIf]) -> str:
    """The worst disagreement, and whether the intervals allow to say so."""
    worst, more = max(each.off for each in found), max(each.more_rounds for each in found)
    text = f"worst disagreement {worst:.1%} over {len(found)} curves"
    if more:
        text += f"; the widest interval needs {more} more rounds to be within ±5 %"
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=".models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--draft", type=Path, default=".models/draft-2-layers.gguf")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--curves", type=int, default=len(CURVES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args(argv)
    bench = make_bench(
        options.model, options.draft, options.threads, options.blocks, options.tokens
    )
    print(f"SYNTHETIC acceptance, real clock; {options.rounds} rounds of three launches\n{HEAD}")
    results = []
    for name, rates in list(CURVES.items())[: options.curves]:
        asked = lever_of(rates)
        three = servers(bench, options.draft, rates, asked)
        results.append(run_what_if(bench, three, asked, options.rounds))
        print(row(name, len(rates), results[-1]), flush=True)
    print(summary(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
