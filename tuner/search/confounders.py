"""Owns what differs between a trial and its baseline besides drafting: a comparison that is not
only of speculation says so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.engines.base import Drift
from tuner.measure.records import Block

_LONGEST = 60
CLOCK_APART = 0.03
"""GPU clocks further apart than this explain a gain that somebody may expect of drafting."""

THROTTLED_APART = 0.05
"""Share of samples held back by one reason, beyond that of the baseline."""


def confounders(
    names: Sequence[str], baseline: Mapping[str, Any], trial: Mapping[str, Any]
) -> list[Drift]:
    """Effective values, among `names`, in which a trial's server is not its baseline's."""
    return [
        Drift(name, _word(baseline[name]), _word(trial[name]), True, _text(name, baseline, trial))
        for name in names
        if name in baseline and name in trial and baseline[name] != trial[name]
    ]


def gpu_confounders(baseline: Sequence[Block], trial: Sequence[Block]) -> list[str]:
    """What the GPUs did otherwise than in the baseline's launch; [] where they were not sampled.

    Both are taken over all blocks: servers that work in bursts differ from block to block.
    """
    before, now = _gpu_totals(baseline), _gpu_totals(trial)
    found = []
    for index in sorted(before.keys() & now.keys()):
        was, clock = before[index]["clock"], now[index]["clock"]
        if was and abs(clock / was - 1) > CLOCK_APART:
            found.append(
                f"GPU {index} ran at {clock:.0f} MHz, in the baseline at {was:.0f} MHz: more than "
                "speculation differs; lock the clocks (nvidia-smi -lgc) or cool the machine"
            )
        for reason in sorted(now[index].keys() - {"clock"}):
            share, usual = now[index][reason], before[index].get(reason, 0.0)
            if share - usual > THROTTLED_APART:
                found.append(
                    f"GPU {index} was held back by its {reason} in {share:.0%} of the samples, in "
                    f"the baseline in {usual:.0%}: more than speculation differs"
                )
    return found


def _gpu_totals(blocks: Sequence[Block]) -> dict[int, dict[str, float]]:
    """Mean clock and share of samples by throttle reason, per GPU over all blocks."""
    samples: dict[int, int] = {}
    totals: dict[int, dict[str, float]] = {}
    for gpu in (gpu for block in blocks for gpu in block.gpus):
        index, count = int(gpu["index"]), int(gpu["samples"])
        samples[index] = samples.get(index, 0) + count
        total = totals.setdefault(index, {"clock": 0.0})
        for name, value in {"clock": gpu["sm_clock_mhz_mean"], **gpu["throttled"]}.items():
            total[name] = total.get(name, 0.0) + value * count
    return {
        index: {name: value / samples[index] for name, value in total.items()}
        for index, total in totals.items()
    }


def _text(name: str, baseline: Mapping[str, Any], trial: Mapping[str, Any]) -> str:
    return (
        f"{name} is {_word(baseline[name])} in the baseline and {_word(trial[name])} here: "
        f"more than speculation differs; fix it in engine.args"
    )


def _word(value: object) -> str:
    if value is None:
        return "unset"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
