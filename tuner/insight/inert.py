"""Owns which parameters changed nothing: the same running server, or no difference in speed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner import units
from tuner.args import ServerArgs
from tuner.store.record import TrialRecord

LEAST_NOISE = 0.015

SEVERAL = 2
"""Pairs of trials that make a finding good enough to act on."""


@dataclass(frozen=True, slots=True)
class Inert:
    """A parameter without effect.

    Args:
        name: of the parameter.
        settings: its flag or variable names in the requested arguments.
        pairs: pairs of trials that differ in nothing else.
        largest: largest difference in speed between such two.
        without: those of the variables that one of such two ran without.
    """

    name: str
    settings: tuple[str, ...]
    pairs: int
    largest: float
    without: frozenset[str] = frozenset()

    @property
    def sentence(self) -> str:
        """What a reader should know."""
        pairs = "1 pair" if self.pairs == 1 else f"{self.pairs} pairs"
        return (
            f"{self.name} is inert here: {pairs} of trials that differ only in it are the same "
            f"server by its own report and within {units.percent(self.largest)} in speed"
        )


def find_inert(trials: Sequence[TrialRecord], noise: float = LEAST_NOISE) -> list[Inert]:
    """Parameters whose every change left the reported server and the speed as they were.

    Only pairs that differ in one parameter count, and only a parameter with such a pair is
    called inert. `noise` is the relative difference that means nothing.
    """
    measured = [t for t in trials if t.state == "complete" and t.value and t.value > 0]
    seen: dict[str, list[tuple[float, bool, tuple[str, ...], frozenset[str]]]] = {}
    for index, one in enumerate(measured):
        for other in measured[index + 1 :]:
            names = _differing(one.params, other.params)
            if len(names) == 1:
                gap = abs(math.log((one.value or 1) / (other.value or 1)))
                seen.setdefault(names[0], []).append(
                    (gap, _same(one, other), _settings(one, other), _absent(one, other))
                )
    return [
        Inert(
            name,
            pairs[0][2],
            len(pairs),
            max(gap for gap, *_ in pairs),
            frozenset().union(*(absent for *_, absent in pairs)),
        )
        for name, pairs in sorted(seen.items())
        if all(same and gap <= noise for gap, same, *_ in pairs)
    ]


def _same(one: TrialRecord, other: TrialRecord) -> bool:
    """True when both running servers reported the same values."""
    return one.effective_args == other.effective_args


def _settings(one: TrialRecord, other: TrialRecord) -> tuple[str, ...]:
    a, b = one.requested_args, other.requested_args
    return (*_differing(a.flags, b.flags), *_differing(a.env, b.env))


def _absent(one: TrialRecord, other: TrialRecord) -> frozenset[str]:
    """Variables in which two trials differ and that one of them ran without."""
    a, b = one.requested_args.env, other.requested_args.env
    return frozenset(n for n in _differing(a, b) if a.get(n) is None or b.get(n) is None)


def _differing(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    missing = object()
    names = sorted({**one, **other})
    return [n for n in names if one.get(n, missing) != other.get(n, missing)]


def without_inert(args: ServerArgs, found: Sequence[Inert]) -> tuple[ServerArgs, list[str]]:
    """The server without inert variables, and a sentence for each that was left out.

    Only environment variables, and only on the evidence of several pairs, one of them with the
    variable absent: a flag is part of what the running server reports, one pair may be an
    accident, and values that are alike say nothing of the default.
    """
    dropped = {
        name: each
        for each in found
        for name in each.settings
        if each.pairs >= SEVERAL and name in each.without and args.env.get(name) is not None
    }
    env = {name: value for name, value in args.env.items() if name not in dropped}
    notes = [
        f"left out {name}={args.env[name]}: {each.sentence}." for name, each in dropped.items()
    ]
    return ServerArgs(args.flags, env), notes
