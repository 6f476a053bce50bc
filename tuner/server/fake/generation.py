"""Owns one generation of the fake server: steps in true time, chunks out, truth written down."""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tuner.server.fake import speed
from tuner.server.fake.answers import Answer, accepted_counts, seed_of, write_answer
from tuner.server.fake.behaviour import Behaviour, matches_environment
from tuner.server.fake.ledger import Ledger, Truth
from tuner.server.fake.speed import Speculation

_YIELD_EVERY = 64  # chunks between two turns of the event loop when nothing has to be waited for


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request asks for, whatever its route."""

    prompt: str
    max_tokens: int
    exact: bool
    use_cache: bool


class Generation:
    """One answer being generated."""

    def __init__(
        self, behaviour: Behaviour, speculation: Speculation, ledger: Ledger, drift: float
    ) -> None:
        self._behaviour = behaviour
        self._speculation = speculation
        self._ledger = ledger
        self._drift = drift
        self.is_garbage = behaviour.garbage or (
            behaviour.garbage_env is not None
            and matches_environment(behaviour.garbage_env, dict(os.environ))
        )

    def prepare(self, ask: Ask, truth: Truth) -> Answer:
        """Decide the answer; counts prompt tokens and cache hits."""
        truth.prompt_tokens = max(1, len(ask.prompt.split()))
        if ask.use_cache and self._behaviour.cache_speedup > 1:
            if ask.prompt in self._ledger.seen_prompts:
                truth.cached_tokens = truth.prompt_tokens - 1
            self._ledger.seen_prompts.add(ask.prompt)
        return write_answer(
            self._behaviour,
            ask.prompt,
            ask.max_tokens,
            self._ledger.launch,
            garbage=self.is_garbage,
            exact=ask.exact,
        )

    async def stream(self, answer: Answer, truth: Truth) -> AsyncIterator[str]:
        """The text of each chunk, when it is due."""
        waiting: list[str] = []
        written = 0
        due = time.perf_counter() + self._prefill_seconds(truth)
        noise = random.Random(seed_of(self._ledger.launch, str(truth.number)))
        for turn, accepted in enumerate(self._accepted(answer, truth), start=1):
            await _until(due, turn)
            count = min(1 + accepted, len(answer.words) - written)
            self._count(truth, count - 1)
            waiting += answer.words[written : written + count]
            written += count
            for text in self._chunks(waiting, written == len(answer.words)):
                self._stamp(truth)
                yield text
            due += self._step_seconds(truth, noise)

    def _accepted(self, answer: Answer, truth: Truth) -> list[int]:
        loss = self._behaviour.acceptance_loss_per_request * truth.number
        chances = speed.position_chances(self._behaviour, self._speculation)
        lowered = [max(0.0, chance - loss) for chance in chances]
        return accepted_counts(lowered, len(answer.words), answer.seed)

    def _chunks(self, waiting: list[str], is_last: bool) -> list[str]:
        """Take what can go out now from `waiting`."""
        size = self._behaviour.tokens_per_chunk or len(waiting)
        texts = []
        while len(waiting) >= size or (is_last and waiting):
            texts.append("".join(waiting[:size]))
            del waiting[:size]
        return texts

    def _count(self, truth: Truth, accepted: int) -> None:
        verified = self._speculation.verified
        self._ledger.count_step(accepted, verified)
        truth.steps += 1
        truth.drafted += verified
        truth.accepted += accepted if verified else 0
        truth.output_tokens += 1 + accepted

    def _stamp(self, truth: Truth) -> None:
        now = time.perf_counter()
        truth.first_s = now if truth.first_s is None else truth.first_s
        truth.last_s = now
        truth.chunk_s.append(now)

    # ---- time ------------------------------------------------------------------------------
    def _prefill_seconds(self, truth: Truth) -> float:
        cold = truth.prompt_tokens - truth.cached_tokens
        seconds = (self._behaviour.ttft_ms + self._behaviour.prefill_ms_per_token * cold) / 1000
        seconds /= self._behaviour.cache_speedup if truth.cached_tokens else 1.0
        return seconds * self._slowness(truth)

    def _step_seconds(self, truth: Truth, noise: random.Random) -> float:
        seconds = speed.step_seconds(self._behaviour, self._speculation, self._ledger.running)
        if self._behaviour.jitter:
            seconds *= max(0.1, noise.gauss(1.0, self._behaviour.jitter))
        return seconds * self._slowness(truth)

    def _slowness(self, truth: Truth) -> float:
        behaviour = self._behaviour
        factor = self._drift
        if truth.number < behaviour.slow_first:
            factor *= behaviour.slow_first_factor
        if self._has_slowed(truth):
            factor *= behaviour.slow_after_factor
        if self._ledger.has_collapsed:
            factor *= behaviour.collapse_factor
        return factor / behaviour.garbage_speedup if self.is_garbage else factor

    def _has_slowed(self, truth: Truth) -> bool:
        after, first = self._behaviour.slow_after_s, self._behaviour.slow_from
        age = time.perf_counter() - self._ledger.started_s
        return (after is not None and age > after) or (first is not None and truth.number >= first)


async def _until(due: float, turn: int) -> None:
    wait = due - time.perf_counter()
    if wait > 0:
        await asyncio.sleep(wait)
    elif turn % _YIELD_EVERY == 0:
        await asyncio.sleep(0)


def usage_of(truth: Truth, behaviour: Behaviour) -> dict[str, Any]:
    """The usage object as reported, offset and cache details included."""
    output = truth.output_tokens + behaviour.usage_offset
    return {
        "prompt_tokens": truth.prompt_tokens,
        "completion_tokens": output,
        "total_tokens": truth.prompt_tokens + output,
        "prompt_tokens_details": {"cached_tokens": truth.cached_tokens},
    }


def timings_of(truth: Truth, behaviour: Behaviour) -> dict[str, Any]:
    """llama.cpp's timings object; draft counts only when something was drafted."""
    first = truth.first_s or truth.arrived_s
    predicted_ms = ((truth.last_s or first) - first) * 1000
    timings: dict[str, Any] = {
        "prompt_n": truth.prompt_tokens - truth.cached_tokens,
        "prompt_ms": (first - truth.arrived_s) * 1000,
        "predicted_n": truth.output_tokens,
        "predicted_ms": math.nan if behaviour.nan_timings else predicted_ms,
        "cache_n": truth.cached_tokens,
    }
    if truth.drafted and behaviour.report_drafts:
        timings |= {"draft_n": truth.drafted, "draft_n_accepted": truth.accepted}
    return timings
