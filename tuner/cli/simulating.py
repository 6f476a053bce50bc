"""Owns `tuner explain --simulate`: a what-if run on the real server with synthetic acceptance.

Every round launches the baseline, the explained server as it is, and the same server told to
accept what the lever names; forwards and backwards in turn, on the prompts of the search.
Nothing of it is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner import units
from tuner.args import ServerArgs
from tuner.cli.output import narrate
from tuner.cli.remeasuring import work_folder
from tuner.config.loader import load_study
from tuner.engines.synthetic import with_acceptance
from tuner.errors import EngineError, UsageError
from tuner.events import ConfirmationProgressed, Event
from tuner.insight.counts import answer_tokens
from tuner.insight.leverage import Explanation
from tuner.insight.levers import Lever
from tuner.insight.whatif import Counted, WhatIf, compare, count_block
from tuner.search.bench import Bench
from tuner.search.remeasure import Contender, Remeasured, remeasure
from tuner.search.session import open_session
from tuner.server.interrupts import raise_on_signals
from tuner.store.stored import study_path

ROUNDS = 4

NAMES = ("baseline", "measured", "lever")

SHOWN = ("baseline", "the server as it is", "told to accept the lever's length (synthetic)")


def simulated(study: str, found: Explanation, rounds: int = ROUNDS) -> Explanation:
    """The explanation with its what-if run beside the prediction.

    Raises:
        UsageError: there is nothing to simulate, or the engine cannot.
        EngineError: the server does not run, or counts nothing.
    """
    lever = _lever(found)
    assert lever.length is not None
    loaded = load_study(study_path(study))
    with raise_on_signals(), open_session(loaded, _narrate, new=False) as session:
        three = contenders(session.bench, found, lever.length)
        result = run_what_if(synthetic_bench(session.bench, found), three, lever.length, rounds)
    ran = result.ran
    done = replace(lever, simulated=(ran.ratio, ran.low, ran.high))
    levers = tuple(done if each is lever else each for each in found.levers)
    return replace(found, levers=levers, what_if=result)


def _lever(found: Explanation) -> Lever:
    """The lever that names an acceptance length."""
    for lever in found.levers:
        if lever.length is not None:
            return lever
    raise UsageError(
        f"--simulate: study {found.study} must have a lever that changes acceptance, got none.",
        "Only drafts of a model have one; run the study first.",
    )


def contenders(bench: Bench, found: Explanation, length: float) -> list[Contender]:
    """The baseline, the explained server as it is, and told to accept a length."""
    assert found.trial is not None
    record = found.trial.requested_args
    args = ServerArgs(record.flags, record.env)
    told = with_acceptance(bench.engine.kind, args, length)
    if told is None:
        raise UsageError(
            f"--simulate: the engine must know synthetic acceptance, got {bench.engine.kind}.",
            "Use sglang, vllm or llamacpp.",
        )
    servers = (bench.engine.without_speculation(args), args, told)
    named = zip(NAMES, servers, strict=True)
    return [Contender(number, name, server) for number, (name, server) in enumerate(named)]


def synthetic_bench(bench: Bench, found: Explanation) -> Bench:
    """The search's own prompts at the objective's load, and answers of a fixed length: as long
    as they were, because synthetic texts do not end by themselves."""
    workload, load = bench.workload, bench.objective.load
    usual = answer_tokens(found.trial, load.label) if found.trial else None
    most = workload.sampling.max_tokens
    tokens = min(max(round(usual), 1), most) if usual else most
    changed = replace(
        workload,
        sampling=replace(workload.sampling, exact_tokens=True, max_tokens=tokens),
        held_out_blocks=workload.blocks,
        loads=(load,),
    )
    return replace(bench, workload=changed, observer=_narrate)


def run_what_if(
    bench: Bench, three: Sequence[Contender], length: float, rounds: int = ROUNDS
) -> WhatIf:
    """Launch the three in interleaved rounds and compare; raises EngineError."""
    with work_folder() as folder:
        found = remeasure(bench, three, rounds, folder)
    servers = {
        name: [_counted(each) for each in _of(found, number)] for number, name in enumerate(NAMES)
    }
    result = compare(servers, length, sum(each.launch.seconds.total for each in found))
    if not result.predicted > 0:
        raise EngineError(
            f"{bench.engine.kind}: must count accepted tokens per launch, got no counts.",
            "Switch its metrics on; without counts a what-if cannot be checked.",
        )
    return result


def _of(found: Sequence[Remeasured], number: int) -> list[Remeasured]:
    ours = [each for each in found if each.number == number]
    return sorted(ours, key=lambda each: each.launch.round)


def _counted(launched: Remeasured) -> list[Counted]:
    drafts = launched.number > 0
    return [
        count_block(block, launched.counters.get(block.index), drafts=drafts)
        for block in launched.blocks
    ]


def _narrate(event: Event) -> None:
    if isinstance(event, ConfirmationProgressed):
        value = "no value" if event.value is None else units.number(event.value)
        narrate(f"round {event.round + 1}/{event.rounds}  {SHOWN[event.trial]}: {value}")
