"""Owns `tuner explain --simulate`: a what-if run on the real server with synthetic acceptance.

Both servers run synthetic, one at the acceptance that was measured and one at the lever's: their
ratio is the effect of acceptance alone, as the model predicts it. Nothing of it is stored.
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
from tuner.errors import UsageError
from tuner.events import ConfirmationProgressed, Event
from tuner.insight.leverage import Explanation
from tuner.insight.levers import Lever
from tuner.measure.statistics import Interval
from tuner.search.bench import Bench
from tuner.search.remeasure import Contender, gain_between, remeasure
from tuner.search.session import open_session
from tuner.server.interrupts import raise_on_signals
from tuner.store.stored import study_path

ROUNDS = 2


def simulated(study: str, found: Explanation) -> Explanation:
    """The explanation with its what-if run beside the prediction.

    Raises:
        UsageError: there is nothing to simulate, or the engine cannot.
        EngineError: the server does not run.
    """
    lever = _lever(found)
    loaded = load_study(study_path(study))
    with raise_on_signals(), open_session(loaded, _narrate, new=False) as session:
        pair = _pair(session.bench, found, lever)
        gain = _gain(_synthetic_bench(session.bench), pair)
    done = replace(lever, simulated=(gain.ratio, gain.low, gain.high))
    levers = tuple(done if each is lever else each for each in found.levers)
    return replace(found, levers=levers)


def _lever(found: Explanation) -> Lever:
    """The lever that names an acceptance length."""
    for lever in found.levers:
        if lever.length is not None:
            return lever
    raise UsageError(
        f"--simulate: study {found.study} must have a lever that changes acceptance, got none.",
        "Only drafts of a model have one; run the study first.",
    )


def _pair(bench: Bench, found: Explanation, lever: Lever) -> list[Contender]:
    """The explained server at its own acceptance and at the lever's."""
    assert found.trial is not None
    assert found.curve is not None
    assert lever.length is not None
    record = found.trial.requested_args
    args = ServerArgs(record.flags, record.env)
    servers = [
        with_acceptance(bench.engine.kind, args, length)
        for length in (found.curve.length, lever.length)
    ]
    names = ("now", "lever")
    pairs = zip(names, servers, strict=True)
    made = [Contender(n, name, s) for n, (name, s) in enumerate(pairs) if s is not None]
    if len(made) < len(names):
        raise UsageError(
            f"--simulate: the engine must know synthetic acceptance, got {bench.engine.kind}.",
            "Use sglang, vllm or llamacpp.",
        )
    return made


def _synthetic_bench(bench: Bench) -> Bench:
    """One load point, and answers of a fixed length: synthetic texts do not end by themselves."""
    workload = bench.workload
    sampling = replace(workload.sampling, exact_tokens=True)
    changed = replace(workload, sampling=sampling, loads=(bench.objective.load,))
    return replace(bench, workload=changed, observer=_narrate)


def _gain(bench: Bench, pair: Sequence[Contender]) -> Interval:
    direction = "maximize" if bench.objective.maximize else "minimize"
    with work_folder() as folder:
        return gain_between(remeasure(bench, pair, ROUNDS, folder), direction)


def _narrate(event: Event) -> None:
    if isinstance(event, ConfirmationProgressed):
        value = "no value" if event.value is None else units.number(event.value)
        name = ("acceptance as it is", "acceptance of the lever")[event.trial]
        narrate(f"round {event.round + 1}/{event.rounds}  {name}: {value} (synthetic)")
