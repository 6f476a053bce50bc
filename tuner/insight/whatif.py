"""Owns the comparison of a what-if with its run: predicted and ran, from interleaved launches.

Every step of a request gives one token and those it accepted, so steps are counted, not timed:
the prediction takes them from the counters and the time from the measured server's launches in
the same rounds. What is then left between predicted and ran is the clock's noise alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner import units
from tuner.measure.noise import rounds_needed
from tuner.measure.records import Acceptance, Block
from tuner.measure.statistics import Interval, gain_intervals, paired_gain

TOLERANCE = math.log(1.05)
"""A run says something about a prediction when its interval is no wider than ±5 %."""


MOST_ROUNDS = 64
"""More are never planned."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One block of one launch in exact counts and the client's clock.

    `accepted` are drafted tokens by the engine's counters (NaN: it reported none), `drafts` the
    steps that it counts as verifications.
    """

    tokens: int
    requests: int
    accepted: float
    drafts: float
    waited_s: float
    busy_s: float
    wall_s: float

    @property
    def steps(self) -> float:
        """Decoding steps: an answer's first token comes from its prefill."""
        return self.tokens - self.requests - self.accepted

    @property
    def speed(self) -> float:
        """Tokens per second of wall time."""
        return self.tokens / self.wall_s if self.wall_s > 0 else math.nan


Launches = Sequence[Sequence[Counted]]
"""Per round, the blocks of one server's launch."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A what-if beside its run; ratios are to the measured server in the same rounds.

    Args:
        asked: the acceptance length that the lever names.
        drawn: the one that the server's lot gave, counted.
        measured: the explained server's own in these launches, counted.
        predicted: from counters and the measured server's clock, at the asked length.
        ran: what the run gave at the asked length; the luck of the lot is divided out.
        raw: the same with it.
        versus: the run server as a ratio to the baseline, at the asked length.
        seconds: of all launches together.
    """

    asked: float
    drawn: float
    measured: float
    predicted: float
    ran: Interval
    raw: float
    versus: Interval
    seconds: float = 0.0

    @property
    def off(self) -> float:
        """How far the run lies from the prediction, as a share of it."""
        return abs(self.ran.ratio / self.predicted - 1)

    @property
    def more_rounds(self) -> int:
        """Further rounds until the interval is expected within ±5 %; 0 when it is."""
        if self.ran.half_width <= TOLERANCE:
            return 0
        noise = self.ran.sd / math.sqrt(2)  # of one launch: `sd` is that of a difference
        return max(rounds_needed(noise, TOLERANCE) - self.ran.replicates, 1)

    def lines(self) -> list[str]:
        """What a reader should know, in sentences."""
        ran = f"{units.ratio(self.ran.ratio)} {units.interval(self.ran.low, self.ran.high)}"
        found = [
            f"What-if run on the real server, told what to accept ({self.ran.replicates} rounds):",
            f"acceptance length {self.measured:.2f} measured, {self.asked:.2f} asked, "
            f"{self.drawn:.2f} drawn (counted)",
            f"predicted {units.ratio(self.predicted)}, ran {ran}: {self._verdict()}",
            f"against the baseline {units.ratio(self.versus.ratio)} "
            f"{units.interval(self.versus.low, self.versus.high)}",
        ]
        return found

    def _verdict(self) -> str:
        apart = f"{units.percent(self.off)} apart"
        if more := self.more_rounds:
            minutes = more * self.seconds / max(self.ran.replicates, 1) / 60
            total = self.ran.replicates + more
            if total >= MOST_ROUNDS:
                return (
                    f"{apart}, but this machine is too noisy to tell: not even {MOST_ROUNDS} "
                    "rounds would do: run it when the machine is idle"
                )
            return (
                f"{apart}, but the interval is wider than ±5 %; --rounds {total} should do "
                f"(about {math.ceil(minutes)} min more)"
            )
        inside = self.ran.low <= self.predicted <= self.ran.high
        return apart if inside or self.off <= 0.05 else f"{apart}: the model does not fit here"

    def to_json(self) -> dict[str, Any]:
        """Everything, for `--json`."""
        return {
            "ratio": self.ran.ratio,
            "low": self.ran.low,
            "high": self.ran.high,
            "predicted": self.predicted,
            "raw_ratio": self.raw,
            "vs_baseline": self.versus.ratio,
            "vs_baseline_low": self.versus.low,
            "vs_baseline_high": self.versus.high,
            "acceptance_length": {
                "measured": self.measured, "asked": self.asked, "drawn": self.drawn,
            },
            "rounds": self.ran.replicates,
            "more_rounds": self.more_rounds,
        }  # fmt: skip


def count_block(block: Block, acceptance: Acceptance | None, *, drafts: bool) -> Counted:
    """A block in counts.

    Args:
        block: what the client saw.
        acceptance: the engine's counters over this block.
        drafts: the server speculates; one that reports nothing then has unknown steps.
    """
    answers = [record for record in block.records if record.ok]
    unknown = math.nan if drafts else 0.0
    return Counted(
        tokens=sum(record.output_tokens or 0 for record in answers),
        requests=len(answers),
        accepted=unknown if acceptance is None else float(acceptance.accepted),
        drafts=unknown if acceptance is None else float(acceptance.steps or math.nan),
        waited_s=sum((r.first_s or r.end_s) - r.sent_s for r in answers),
        busy_s=sum(r.end_s - r.sent_s for r in answers),
        wall_s=block.wall_s,
    )


def compare(servers: Mapping[str, Launches], asked: float, seconds: float = 0.0) -> WhatIf:
    """Predicted and ran.

    Args:
        servers: launches of `baseline`, `measured` and `lever`, round by round.
        asked: the acceptance length that `lever` was told.
        seconds: what all launches took.
    """
    measured, lever = servers["measured"], servers["lever"]
    share = _decode_share(measured)
    luck = _length(lever) / asked
    before, after = _steps(measured), _steps(lever) * luck
    predicted = _speed_up(share, before, after)
    drawn = [_adjusted(ours, theirs, share) for ours, theirs in zip(lever, measured, strict=True)]
    plain, own = _speeds(servers["baseline"]), _speeds(measured)
    raw = [paired_gain(a, b) for a, b in zip(_speeds(lever), _speeds(measured), strict=True)]
    return WhatIf(
        asked=asked,
        drawn=_length(lever),
        measured=_length(measured),
        predicted=predicted,
        ran=_times(gain_intervals([drawn, plain], own)[0], predicted),
        raw=float(np.exp(np.mean(np.log(raw)))),
        versus=_times(gain_intervals([drawn, own], plain)[0], predicted),
        seconds=seconds,
    )


def _adjusted(ours: Sequence[Counted], theirs: Sequence[Counted], share: float) -> list[float]:
    """Speeds by block with the effect of the counted steps divided out: 1 is the prediction."""
    return [
        one.speed / _speed_up(share, other.steps, one.steps)
        for one, other in zip(ours, theirs, strict=True)
    ]


def _speed_up(share: float, before: float, after: float) -> float:
    """How much faster an answer is when its decoding takes `after` steps instead of `before`."""
    return 1 / (1 - share + share * after / before)


def _times(interval: Interval, factor: float) -> Interval:
    ends = (interval.ratio * factor, interval.low * factor, interval.high * factor)
    return Interval(*ends, interval.replicates, interval.sd)


def _speeds(launches: Launches) -> list[list[float]]:
    return [[block.speed for block in launch] for launch in launches]


def _decode_share(launches: Launches) -> float:
    """Share of a request's time that is spent in steps."""
    blocks = [block for launch in launches for block in launch]
    whole = sum(block.busy_s for block in blocks)
    return 1 - sum(block.waited_s for block in blocks) / whole if whole > 0 else 1.0


def _steps(launches: Launches) -> float:
    """Decoding steps of one launch, on average."""
    return float(np.mean([sum(block.steps for block in launch) for launch in launches]))


def _length(launches: Launches) -> float:
    """Acceptance length over all launches, as engines count it: bonus token included."""
    blocks = [block for launch in launches for block in launch]
    steps = sum(b.drafts if math.isfinite(b.drafts) else b.steps for b in blocks)
    return 1 + sum(block.accepted for block in blocks) / steps if steps else math.nan
