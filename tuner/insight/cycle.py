"""Owns where the time of a step goes: drafting, verifying, the rest; and how that is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tuner.insight.counts import Steps
from tuner.model.clock import Clock
from tuner.store.record import TrialRecord

Basis = Literal["measured", "fitted"]

UNTIMED = "drafting was not timed (no CUDA graph): it is part of other"
CHAINS = "only chains were measured: drafting and verifying are told apart by a prior"


@dataclass(frozen=True, slots=True)
class Cycle:
    """Seconds of one step by part; `basis` says whether the engine timed them."""

    trial: int
    draft: float
    verify: float
    other: float
    basis: Basis
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.draft + self.verify + self.other

    @property
    def shares(self) -> dict[str, float]:
        """Each part of 1."""
        parts = {"draft": self.draft, "verify": self.verify, "other": self.other}
        whole = self.seconds or 1.0
        return {name: value / whole for name, value in parts.items()}

    def to_json(self) -> dict[str, Any]:
        """Seconds per step by part, their shares, and the basis."""
        return {
            "draft": self.draft,
            "verify": self.verify,
            "other": self.other,
            "step": self.seconds,
            "shares": self.shares,
            "basis": self.basis,
            "trial": self.trial,
            "notes": list(self.notes),
        }


def find_cycle(
    trial: TrialRecord, steps: Steps | None, clock: Clock | None, *, is_alone: bool
) -> Cycle | None:
    """The cycle of a speculative trial: measured where its engine timed it, else fitted.

    Args:
        trial: the trial.
        steps: its counts.
        clock: fitted to the whole study.
        is_alone: one request at a time: only then is a step's wall time all one request's.
    """
    timed = {name: value for name, value in trial.cycle.items() if value > 0}
    if "verify" in timed:
        return _measured(trial, timed, steps if is_alone else None)
    if clock is None or steps is None or not steps.drafting:
        return None
    return _fitted(steps, clock)


def _measured(trial: TrialRecord, timed: dict[str, float], steps: Steps | None) -> Cycle:
    draft = timed.get("draft", 0.0) + timed.get("draft_extend", 0.0)
    verify, other = timed["verify"], timed.get("other", 0.0)
    if steps is not None and steps.seconds > draft + verify + other:
        other = steps.seconds - draft - verify  # what the device does not see: host and waiting
    notes = () if "draft" in timed else (UNTIMED,)
    return Cycle(trial.number, draft, verify, other, "measured", notes)


def _fitted(steps: Steps, clock: Clock) -> Cycle:
    _, base, start, each_token, each_pass = (float(value) for value in clock.seconds)
    draft = steps.drafting * steps.passes * each_pass
    verify = base + steps.drafting * (start + steps.verified * each_token)
    explained = draft + verify
    if steps.seconds < explained:  # the parts share what was measured
        draft, verify = (part * steps.seconds / explained for part in (draft, verify))
    other = max(0.0, steps.seconds - explained)
    is_chain = steps.passes == steps.verified
    return Cycle(steps.trial, draft, verify, other, "fitted", (CHAINS,) if is_chain else ())
