"""Owns measuring known servers again, in interleaved rounds, and whether they are what they were.

Knows no study and no bundle: a contender is arguments and what starts them. A failure here is
no trial's: it ends the command in the server's own words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tuner.args import ServerArgs
from tuner.engines.base import Drift
from tuner.errors import EngineError, TrialFailure
from tuner.events import ConfirmationProgressed
from tuner.measure.distributions import t_quantile
from tuner.measure.fidelity import compare_outputs, verdict
from tuner.measure.records import Acceptance, Block, RequestRecord
from tuner.measure.statistics import Interval, gain_interval, log_ratios, robust_center
from tuner.search.bench import Bench, LaunchPlan, ServerRun, never
from tuner.search.confirm import confirmed_launch, order_of
from tuner.search.launching import run_launch
from tuner.search.sweep import first_answers, swept_gain
from tuner.server.command import LaunchCommand
from tuner.store.record import ConfirmationLaunch

LEVEL = 0.95

LEAST_SD = 0.005
"""No host repeats a launch better than half a percent, however alike a few launches came out."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A server that is measured again: number (0 is the baseline), name, what starts it."""

    number: int
    name: str
    args: ServerArgs
    start: Callable[[int], LaunchCommand] | None = None


@dataclass(frozen=True, slots=True)
class Remeasured:
    """One launch of a contender; `counters` are the engine's, by block at the objective's load."""

    number: int
    launch: ConfirmationLaunch
    blocks: tuple[Block, ...]
    effective: Mapping[str, Any]
    drifts: tuple[Drift, ...]
    warnings: tuple[str, ...]
    counters: Mapping[int, Acceptance] = field(default_factory=dict)

    @property
    def answers(self) -> list[RequestRecord]:
        """The answers of the first pass over the prompts."""
        return first_answers(self.blocks)


def remeasure(
    bench: Bench, contenders: Sequence[Contender], rounds: int, folder: Path
) -> list[Remeasured]:
    """Launch every contender once per round, forwards and backwards in turn.

    Raises:
        EngineError: one does not run; its log is under `folder`.
        HostError: a server could not be stopped.
        Interrupted: the user stopped it; no server is left.
    """
    by_number = {each.number: each for each in contenders}
    found = []
    for round_ in range(rounds):
        for number in order_of(round_, list(by_number)):
            place = folder / f"{round_}-{by_number[number].name}"
            found.append(_launched(bench, by_number[number], round_, place))
            value = found[-1].launch.value
            bench.observer(ConfirmationProgressed(round_, rounds, number, value))
    return found


def series_of(found: Sequence[Remeasured], number: int) -> list[list[float]]:
    """The objective per block of each launch of one contender, in the order of rounds."""
    return [list(each.launch.per_block) for each in found if each.number == number]


def _launched(bench: Bench, contender: Contender, round_: int, folder: Path) -> Remeasured:
    folder.mkdir(parents=True, exist_ok=True)
    run, number = ServerRun(), contender.number
    plan = LaunchPlan(
        number=number,
        args=contender.args,
        blocks=bench.workload.held_out_blocks,
        loads=bench.workload.loads,
        folder=folder,
        label=f"{contender.name}-{round_}",
        start=contender.start,
    )
    common = {"round": round_, "order": 0, "trial": number, "digest": contender.args.digest}
    try:
        run_launch(bench, plan, run, never)
        launch = confirmed_launch(bench, run, common)
    except TrialFailure as failure:
        raise EngineError(
            f"{contender.name}: must start and answer, got {failure.kind.label}: {failure.reason}",
            failure.hint or f"Read {run.log_path}.",
        ) from failure
    return Remeasured(
        number=number,
        launch=launch,
        blocks=tuple(run.blocks),
        effective=run.effective,
        drifts=tuple(run.drifts),
        warnings=tuple(run.warnings),
        counters=_counters(bench, run),
    )


def _counters(bench: Bench, run: ServerRun) -> dict[int, Acceptance]:
    where = bench.objective.load
    return {index: each for (load, index), each in run.block_acceptance.items() if load == where}


def gain_between(found: Sequence[Remeasured], direction: str) -> Interval:
    """How much better contender 1 is than contender 0, round by round."""
    ours, theirs = ([e.launch for e in found if e.number == number] for number in (1, 0))
    if ours and ours[0].loads:
        return swept_gain(_in_rounds(ours), _in_rounds(theirs), direction)
    return gain_interval(
        [each.per_block for each in _in_rounds(ours)],
        [each.per_block for each in _in_rounds(theirs)],
        direction=direction,
    )


def _in_rounds(launches: Sequence[ConfirmationLaunch]) -> list[ConfirmationLaunch]:
    return sorted(launches, key=lambda launch: launch.round)


# ---- is it what it was? ----------------------------------------------------------------------
def same_speed(
    now: Sequence[Sequence[float]],
    recorded: Mapping[str, Sequence[Sequence[float]]],
    direction: str,
) -> Interval:
    """How fast a server is against its own recorded launches, blocks paired.

    The interval is that of a further mean of as many launches, by the launch noise pooled over
    every recorded server: with 1 inside it, nothing has changed.

    Args:
        now: per launch, values by block.
        recorded: the same by server; `server` is the one launched now.
        direction: the objective's.
    """
    reference = recorded.get("server", ())
    if not now or len(reference) < 2:
        return Interval(math.nan, 0.0, math.inf, len(now))
    levels = _levels([*reference, *now], reference[0], direction)
    before, after = levels[: len(reference)], levels[len(reference) :]
    shift = float(np.mean(after) - np.mean(before))
    sd, df = _launch_sd(recorded, direction)
    error = max(sd, LEAST_SD) * math.sqrt(1 / len(before) + 1 / len(after))
    half = t_quantile((1 + LEVEL) / 2, df) * error
    return Interval(
        math.exp(shift), math.exp(shift - half), math.exp(shift + half), len(after), sd
    )


def _launch_sd(
    recorded: Mapping[str, Sequence[Sequence[float]]], direction: str
) -> tuple[float, int]:
    """Launch-to-launch standard deviation in log units, pooled over servers; freedom."""
    squares, df = 0.0, 0
    for launches in recorded.values():
        if len(launches) >= 2:
            levels = np.array(_levels(launches, launches[0], direction))
            squares += float(np.sum((levels - levels.mean()) ** 2))
            df += len(levels) - 1
    return math.sqrt(squares / df), df


def _levels(
    launches: Sequence[Sequence[float]], reference: Sequence[float], direction: str
) -> list[float]:
    return [robust_center(log_ratios(each, reference, direction)) for each in launches]


def effective_differences(
    recorded: Mapping[str, Any], now: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """Values that both launches report and that are not the same: name, recorded, now."""
    return [
        (name, recorded[name], now[name])
        for name in sorted(recorded)
        if name in now and recorded[name] != now[name]
    ]


def same_answers(
    recorded: Mapping[str, Sequence[str]], now: Sequence[RequestRecord], *, is_strict: bool
) -> tuple[bool, str] | None:
    """Whether the answers are those of the recorded baseline, as often as it repeats its own;
    None when nothing was recorded."""
    first = [_answer(name, texts[0]) for name, texts in recorded.items() if texts]
    again = [_answer(name, texts[1]) for name, texts in recorded.items() if len(texts) > 1]
    if not first:
        return None
    control = compare_outputs(first, again) if again else None
    found = verdict(compare_outputs(first, now), control, is_strict=is_strict)
    return found.ok, found.text


def answers_by_prompt(launches: Sequence[Sequence[RequestRecord]]) -> dict[str, list[str]]:
    """The text of every finished answer by prompt, launch after launch."""
    texts: dict[str, list[str]] = {}
    for records in launches:
        for name, text in {r.prompt_id: r.text for r in records if r.ok}.items():
            texts.setdefault(name, []).append(text)
    return texts


def _answer(prompt_id: str, text: str) -> RequestRecord:
    return RequestRecord(
        prompt_id, "", 0.0, 0.0, 0.0, 0.0, 0.0, (), None, None, None, "stop", text=text
    )
