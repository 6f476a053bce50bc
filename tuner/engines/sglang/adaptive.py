"""Owns SGLang's adaptive schedule: draft steps by batch size, as its JSON file and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

_DEFAULTS = ("ema_alpha", "update_interval", "warmup_batches", "down_hysteresis",
             "up_hysteresis", "ceiling_coeff")  # fmt: skip
"""Settings of the controller; at the top level they hold for every slot, which candidate steps
do not (0.5.23)."""


def render_adaptive(steps_by_batch: Mapping[int, int | Sequence[int]]) -> str:
    """The file for `--speculative-adaptive-config`: from each batch size on, these steps.

    One step count pins it (the controller cannot leave a list of one); several let the server
    choose among them. 0 is no speculation.

    Raises:
        ValueError: the mapping is empty, a batch size is below 1, or steps are below 0.
    """
    if not steps_by_batch:
        raise ValueError("adaptive: must have at least one batch size, got none")
    slots = {}
    for batch, steps in sorted(steps_by_batch.items()):
        several = [steps] if isinstance(steps, int) else sorted(set(steps))
        _check_slot(batch, several)
        slots[str(batch)] = {"candidate_steps": several}
    return json.dumps(slots, indent=2) + "\n"


def parse_adaptive(text: str) -> dict[int, tuple[int, ...]]:
    """Candidate steps by lowest batch size; the inverse of `render_adaptive`.

    Raises:
        ValueError: it is not such a file, with the slot.
    """
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError(f"adaptive: must be a JSON object, got {type(data).__name__}")
    found: dict[int, tuple[int, ...]] = {}
    for key, slot in data.items():
        if key.isdigit():
            steps = slot.get("candidate_steps") if isinstance(slot, dict) else None
            if not isinstance(steps, list):
                raise ValueError(f"adaptive: slot {key} must have a list candidate_steps")
            _check_slot(int(key), steps)
            found[int(key)] = tuple(steps)
        elif key not in _DEFAULTS:
            raise ValueError(f"adaptive: {key} must be a batch size or a controller setting")
    if not found:
        raise ValueError("adaptive: must have at least one batch size, got none")
    return dict(sorted(found.items()))


def steps_at(schedule: Mapping[int, Sequence[int]], batch: int) -> tuple[int, ...]:
    """The candidates at a batch size: the largest slot at most as large, else the smallest."""
    at_most = [size for size in schedule if size <= batch]
    return tuple(schedule[max(at_most) if at_most else min(schedule)])


def starting_steps(schedule: Mapping[int, Sequence[int]]) -> int:
    """What `--speculative-num-steps` may be: the middle of all candidates, SGLang's default."""
    union = sorted({step for steps in schedule.values() for step in steps})
    return union[len(union) // 2]


def _check_slot(batch: int, steps: Sequence[object]) -> None:
    if batch < 1:
        raise ValueError(f"adaptive: batch sizes must be at least 1, got {batch}")
    whole = [s for s in steps if isinstance(s, int) and not isinstance(s, bool) and s >= 0]
    if not steps or len(whole) != len(steps):
        raise ValueError(f"adaptive: slot {batch} must hold steps >= 0, got {list(steps)}")
