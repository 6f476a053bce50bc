"""Owns how fast the fake server is: a stated formula of its speculative settings and its load.

With k draft steps, top-k t, d draft tokens (d = k + 1 for t = 1) and c running requests:

    a_i  = 1 - (1 - acceptance_i) ** sqrt(t)            position i is accepted after i-1 was
    a_i *= min(1, (d - 1) / (k * t)) ** 0.25            a narrow tree misses some candidates
    L    = 1 + a_1 + a_1 a_2 + … + a_1 … a_k            mean tokens per step
    T    = step_ms * (1 + draft_cost * k
                        + verify_cost * (d - 1) * (1 + verify_load * (c - 1)))
                   * (1 + concurrency_slope * (c - 1))
    tokens/s of one request = L / T

Without speculation k = 0, L = 1 and T = step_ms * (1 + concurrency_slope * (c - 1)).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tuner.server.fake.behaviour import Behaviour
from tuner.server.fake.processes import count_launch


@dataclass(frozen=True, slots=True)
class Speculation:
    """The server's own speculative flags; `steps` 0 is off.

    `schedule`: steps of a chain from each number of running requests on, lowest first.
    """

    steps: int = 0
    topk: int = 1
    draft_tokens: int = 0
    schedule: tuple[tuple[int, int], ...] = ()

    def at(self, running: int) -> Speculation:
        """What holds while so many requests run."""
        steps = [steps for first, steps in self.schedule if first <= running]
        return Speculation(steps[-1], 1, steps[-1] + 1 if steps[-1] else 0) if steps else self

    @property
    def verified(self) -> int:
        """Draft tokens verified per step."""
        if self.steps == 0:
            return 0
        return self.steps if self.topk == 1 else max(1, self.draft_tokens - 1)


def read_schedule(text: str) -> tuple[tuple[int, int], ...]:
    """`1:4,8:0` as pairs, lowest first; raises ValueError for anything else."""
    pairs = [part.split(":") for part in text.split(",") if part]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(text)
    return tuple(sorted((int(first), int(steps)) for first, steps in pairs))


def position_chances(behaviour: Behaviour, speculation: Speculation) -> tuple[float, ...]:
    """Chance that position 1 … k is accepted, given the positions before it were."""
    curve = behaviour.acceptance or (0.0,)
    width = speculation.steps * speculation.topk
    coverage = min(1.0, speculation.verified / width) ** 0.25 if width else 1.0
    chances = []
    for position in range(speculation.steps):
        chance = curve[min(position, len(curve) - 1)]
        chances.append((1 - (1 - chance) ** speculation.topk**0.5) * coverage)
    return tuple(chances)


def mean_length(chances: tuple[float, ...]) -> float:
    """Mean tokens per step, the bonus token counted."""
    length, reached = 1.0, 1.0
    for chance in chances:
        reached *= chance
        length += reached
    return length


def step_seconds(behaviour: Behaviour, speculation: Speculation, running: int) -> float:
    """Seconds of one step while so many requests run."""
    others = max(0, running - 1)
    verify = behaviour.verify_cost * speculation.verified * (1 + behaviour.verify_load * others)
    shape = 1 + behaviour.draft_cost * speculation.steps + verify
    return behaviour.step_ms / 1000 * shape * (1 + behaviour.concurrency_slope * others)


def step_parts(behaviour: Behaviour, speculation: Speculation) -> tuple[float, float]:
    """Seconds of drafting and of verifying in one step of one request."""
    step = behaviour.step_ms / 1000
    draft = step * behaviour.draft_cost * speculation.steps
    return draft, step * (1 + behaviour.verify_cost * speculation.verified)


def launch_factor(behaviour: Behaviour) -> float:
    """Slowness of this launch: 1 without drift."""
    factor = 1.0
    if behaviour.drift_per_launch and behaviour.state_dir:
        earlier = count_launch(behaviour.state_dir, "drifting") - 1
        factor = (1 + behaviour.drift_per_launch) ** earlier
    if not behaviour.launch_drift:
        return factor
    source = random.Random(behaviour.launch_seed)  # None: different at every launch
    return factor * float(max(0.2, source.gauss(1.0, behaviour.launch_drift)))
